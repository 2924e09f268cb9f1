"""Two tenants, one prompt: what is cached for one does not exist for the other. Through the websocket, like an app."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from stack import Stack
from websockets.sync.client import ClientConnection, connect

pytestmark = [pytest.mark.model, pytest.mark.slow]

PROMPT = "Please list the steps to make a good cup of tea. " + "Mind every detail, from the water to the cup. " * 12


class App:
    """An app of one tenant, connected with an API key."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def wait_for(self, kind: str) -> dict[str, Any]:
        while True:
            message: dict[str, Any] = json.loads(self.socket.recv(timeout=60))
            assert message["type"] != "error", message
            if message["type"] == kind:
                return message

    def ask(self, prompt: str) -> dict[str, Any]:
        """Usage of a short greedy answer in a new conversation."""
        self.send(
            type="message.create", client_id=str(uuid.uuid4()), content=prompt, conversation_id=None, parent_id=None,
            sampling={"max_tokens": 4, "temperature": 0},
        )  # fmt: skip
        generation = self.wait_for("message.created")["generation_id"]
        while (finished := self.wait_for("generation.finished"))["generation_id"] != generation:
            pass
        usage: dict[str, Any] = finished["usage"]
        return usage


@contextmanager
def app_of_new_tenant(stack: Stack, ws_url: str, slug: str) -> Iterator[App]:
    """Of a tenant that never asked anything: nothing is cached for it."""
    create = f"from pagoda.tenants.models import Tenant; Tenant.objects.create(slug={slug!r}, name={slug!r})"
    stack.manage("shell", "-c", create)
    key = json.loads(stack.manage("key_create", "--tenant", slug, "--json"))["key"]
    with connect(ws_url) as socket:
        app = App(socket)
        app.send(type="hello", version=1, api_key=key)
        assert app.wait_for("welcome")["tenant"]["slug"] == slug
        yield app


def test_only_the_same_tenant_finds_the_prompt_cached(stack: Stack, demo: dict[str, Any]) -> None:
    with (
        app_of_new_tenant(stack, demo["ws_url"], "initech") as initech,
        app_of_new_tenant(stack, demo["ws_url"], "hooli") as hooli,
    ):
        first = initech.ask(PROMPT)
        rival = hooli.ask(PROMPT)
        again = initech.ask(PROMPT)
    assert first["prompt_tokens"] == rival["prompt_tokens"] == again["prompt_tokens"] > 100
    assert first["cached_tokens"] == 0
    assert rival["cached_tokens"] == 0
    assert again["cached_tokens"] == (again["prompt_tokens"] - 1) // 16 * 16


def test_a_key_opens_its_own_tenant_alone(stack: Stack, demo: dict[str, Any]) -> None:
    with connect(demo["ws_url"]) as socket:
        hello = App(socket)
        key = demo["tenants"][0]["api_keys"][0]["key"]
        hello.send(type="hello", version=1, api_key=key, tenant=demo["tenants"][1]["slug"])
        with pytest.raises(Exception, match="4403"):
            hello.wait_for("welcome")
