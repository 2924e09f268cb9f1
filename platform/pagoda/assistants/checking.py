"""Whether a system prompt can be used at all: asked of an engine before it is stored."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from pagoda.engines import connections
from pagoda_inference.client import EngineRefused, EngineUnavailable
from pagoda_inference.protocol import ChatMessage

LARGEST_SHARE = 2
"""A system prompt may take one in so many tokens of the context: the rest is the conversation's."""


def check(text: str) -> None:
    """Raises ValidationError where an engine's model takes no such system turn. What cannot be asked is not refused."""
    for address in settings.PAGODA_ENGINES:
        try:
            with connections.sync_client(address) as client:
                context = client.models().context_length
                turns = (ChatMessage("system", text), ChatMessage("user", "?"))
                tokens = len(client.tokenize(messages=turns).token_ids)
        except EngineUnavailable:
            continue
        except EngineRefused as refusal:
            raise ValidationError(refusal.error.message) from None
        if tokens > context // LARGEST_SHARE:
            message = _("This has %(tokens)s tokens: at most %(most)s of the context's %(context)s leave room to talk.")
            numbers = {"tokens": tokens, "most": context // LARGEST_SHARE, "context": context}
            raise ValidationError(message % {name: f"{number:,}" for name, number in numbers.items()})
