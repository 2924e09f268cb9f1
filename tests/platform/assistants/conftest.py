"""A running engine, and people of two tenants before their pages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from channels.db import database_sync_to_async

sys.path.insert(0, str(Path(__file__).parents[1]))

from web_process import engine, engine_options, step_ms, titles_asked, web

from pagoda.assistants.models import PublishedPrefix
from pagoda.engines import connections
from pagoda_inference.protocol import Publish
from pagoda_inference.protocol import PublishedPrefix as InEngine

__all__ = ["engine", "engine_options", "step_ms", "titles_asked", "web"]

TEXT = "You are the librarian of a small town. Answer in two sentences and name a book."


@pytest.fixture
def make_prefix(db: None) -> Callable[..., Any]:
    """Publishes a text; awaitable, since saving talks to the engines."""

    async def make(name: str = "Librarian", text: str = TEXT, **fields: Any) -> PublishedPrefix:
        return await database_sync_to_async(PublishedPrefix.objects.create)(name=name, text=text, **fields)

    return make


@pytest.fixture
def in_engine(engine: str) -> Callable[[], Any]:
    """What the engine has published now, by the prefix's id."""

    def ask() -> dict[str, InEngine]:
        with connections.sync_client(engine, 60) as client:
            return {each.id.partition(".")[0]: each for each in client.publish(Publish(0, ())).prefixes}

    return database_sync_to_async(ask)
