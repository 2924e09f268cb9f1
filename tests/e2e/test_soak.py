"""Hours of use in minutes: conversations, stops, hang-ups and engine kills at random; afterwards everything adds up.

Not part of `make test`: `make soak`, for PAGODA_SOAK_MINUTES (default 5). PAGODA_SOAK_SEED repeats a run.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from stack import Stack, until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

pytestmark = [pytest.mark.soak, pytest.mark.model, pytest.mark.slow]

MINUTES = float(os.environ.get("PAGODA_SOAK_MINUTES", "5"))
SEED = int(os.environ.get("PAGODA_SOAK_SEED") or random.SystemRandom().randrange(1 << 32))
PEOPLE_PER_TENANT = 3
SECONDS_BETWEEN_KILLS = 60.0
WORDS = ("tide", "lamp", "rope", "gull", "fog", "pier", "등대", "바다", "안개")
FINAL = {"complete", "cancelled", "interrupted"}


class Person(threading.Thread):
    """Asks, reads, stops and hangs up with one tenant's key until ``over`` is set. ``seen`` counts how answers end."""

    def __init__(self, name: str, url: str, key: str, over: threading.Event) -> None:
        super().__init__(name=name)
        self.url = url
        self.key = key
        self.over = over
        self.random = random.Random(f"{SEED} {name}")
        self.seen: Counter[str] = Counter()
        self.problems: list[str] = []

    def run(self) -> None:
        while not self.over.is_set():
            with suppress(ConnectionClosed, OSError, TimeoutError), connect(self.url) as socket:
                self.talk(socket)

    def talk(self, socket: ClientConnection) -> None:
        self.send(socket, type="hello", version=1, api_key=self.key)
        conversation = parent = None
        while not self.over.is_set():
            words = " ".join(
                self.random.choices(["tide", "lamp", "rope", "gull", "fog", "pier", "등대", "바다", "안개"], k=30)
            )
            self.send(
                socket, type="message.create", client_id=str(uuid.uuid4()), content=f"Write about: {words}",
                conversation_id=conversation, parent_id=parent,
                sampling={"max_tokens": self.random.randint(4, 60), "temperature": 1.0},
            )  # fmt: skip
            act = self.random.random()
            if act < 0.1:
                return  # hang up; the answer is recorded all the same
            created = self.read(socket, stop_at=self.random.randint(1, 20) if act < 0.4 else None)
            if created is None or self.random.random() < 0.3:
                conversation = parent = None
            else:
                conversation, parent = created["conversation"]["id"], created["assistant_message"]["id"]

    def read(self, socket: ClientConnection, stop_at: int | None) -> dict[str, Any] | None:
        """Follow one answer to its end. ``seq`` must be contiguous, whatever happens to the engine."""
        created: dict[str, Any] | None = None
        last = 0
        while True:
            message = json.loads(socket.recv(timeout=120))
            kind = message["type"]
            if kind == "error":
                self.seen[message["code"]] += 1
                time.sleep(0.2)
                return None
            if kind == "message.created":
                created = message
            elif kind == "generation.snapshot":
                last = message["seq"]
            elif kind in ("generation.started", "generation.delta"):
                if message["seq"] != last + 1:
                    self.problems.append(f"event {message['seq']} after {last}")
                last = message["seq"]
                if stop_at is not None and last >= stop_at:
                    self.send(socket, type="generation.stop", generation_id=message["generation_id"])
                    stop_at = None
            elif kind == "generation.finished":
                self.seen[message["state"]] += 1
                if message["state"] not in FINAL:
                    self.problems.append(f"ended as {message['state']}: {message['error']}")
                return created

    @staticmethod
    def send(socket: ClientConnection, **message: Any) -> None:
        socket.send(json.dumps(message))


def test_everything_adds_up_after_a_storm(stack: Stack, demo: dict[str, Any]) -> None:
    print(f"\nseed {SEED}, {MINUTES:g} minutes")
    over = threading.Event()
    people = [
        Person(f"{tenant['slug']}-{number}", demo["ws_url"], tenant["api_keys"][0]["key"], over)
        for tenant in demo["tenants"]
        for number in range(PEOPLE_PER_TENANT)
    ]
    for person in people:
        person.start()
    end = time.monotonic() + MINUTES * 60
    kills = 0
    while (left := end - time.monotonic()) > 0:
        over.wait(min(left, SECONDS_BETWEEN_KILLS))
        if end - time.monotonic() > SECONDS_BETWEEN_KILLS / 2:
            stack.kill(random.Random(f"{SEED} {kills}").choice(["engine", "engine", "web"]))
            kills += 1
            until(stack.is_ready, 120, "not ready after a kill")
        pool = stack.pool()
        assert pool.free + sum(account.active + account.cached for account in pool.accounts) == pool.total
    over.set()
    for person in people:
        person.join(180)
        assert not person.is_alive(), f"{person.name} waits for ever"

    seen = sum((person.seen for person in people), Counter())
    print(f"{kills} kills, {dict(seen)}")
    assert seen["complete"] > 0
    assert [problem for person in people for problem in person.problems] == []
    until(lambda: stack.active_blocks() == 0, 60, "blocks are still active")
    until(lambda: sum(account.running + account.waiting for account in stack.pool().accounts) == 0, 10, "still at work")
