"""Hints to everything a member has open: something changed, look again. They may be lost; nothing depends on them."""

from __future__ import annotations

import logging
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

logger = logging.getLogger(__name__)


async def send(group: str, payload: dict[str, Any], sender: str = "") -> None:
    """Pass ``payload`` to every socket of the group but the one of the channel ``sender``."""
    try:
        await get_channel_layer().group_send(group, {"type": "hint", "payload": payload, "sender": sender})
    except Exception:
        logger.warning("a hint was lost", exc_info=True)


def send_from_thread(group: str, payload: dict[str, Any]) -> None:
    """The same from synchronous code, for ``transaction.on_commit``."""
    async_to_sync(send)(group, payload)
