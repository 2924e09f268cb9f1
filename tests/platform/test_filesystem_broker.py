"""The embedded broker: a message is whole or not there, and a broken one stops nothing."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from django.conf import settings
from kombu import Connection
from kombu.transport import filesystem, virtual

from pagoda import filesystem_broker
from pagoda.celery import app


@pytest.fixture(autouse=True)
def nothing_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """kombu remembers for the whole process what it bound, whatever the folders."""
    monkeypatch.setattr(filesystem_broker.Transport, "global_state", virtual.BrokerState())


def connect(home: Path) -> Connection:
    folders = {"data_folder_in": home / "queue", "data_folder_out": home / "queue", "control_folder": home / "control"}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    return Connection(
        "filesystem://",
        transport="pagoda.filesystem_broker:Transport",
        transport_options={name: str(folder) for name, folder in folders.items()},
    )


def test_the_worker_uses_it_exactly_where_there_is_no_redis() -> None:
    with app.connection_for_write() as connection:
        assert isinstance(connection.transport, filesystem_broker.Transport) == (settings.REDIS_URL is None)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"5", b'{"body": ""}'])
def test_a_broken_message_is_set_aside_and_the_next_is_read(tmp_path: Path, content: bytes) -> None:
    with connect(tmp_path) as connection, connection.SimpleQueue("pagoda") as queue:
        (tmp_path / "queue" / "0_broken.pagoda.msg").write_bytes(content)
        queue.put({"whole": True})
        message = queue.get(timeout=5)
        message.ack()
        assert message.payload == {"whole": True}
        with pytest.raises(queue.Empty):
            queue.get(block=False)
    assert [each.name for each in (tmp_path / "queue").iterdir()] == ["0_broken.pagoda.msg.broken"]


def test_a_message_is_never_seen_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(tmp_path) as connection:
        channel = connection.default_channel
        write, seen = Path.write_text, []

        def look_then_write(path: Path, *args: Any, **kwargs: Any) -> int:
            path.touch()
            with pytest.raises(Empty):
                channel._get("pagoda")
            seen.append(path)
            return write(path, *args, **kwargs)

        monkeypatch.setattr(Path, "write_text", look_then_write)
        payload = {"body": "x", "properties": {}}
        channel._put("pagoda", payload)
        assert len(seen) == 1
        assert channel._size("pagoda") == 1
        assert channel._get("pagoda") == payload
    assert not list((tmp_path / "queue").iterdir())


def test_messages_come_in_their_order_and_stay_in_their_queue(tmp_path: Path) -> None:
    with connect(tmp_path) as connection, connection.SimpleQueue("pagoda") as ours:
        rival = connection.SimpleQueue("rival")
        for number in range(3):
            rival.put(f"theirs {number}")
            ours.put(f"ours {number}")
        assert [ours.get(timeout=5).payload for _ in range(3)] == ["ours 0", "ours 1", "ours 2"]
        assert rival.get(timeout=5).payload == "theirs 0"
        rival.close()


def test_each_message_is_taken_once(tmp_path: Path) -> None:
    with connect(tmp_path) as connection:
        channel = connection.default_channel
        for number in range(100):
            channel._put("pagoda", {"body": number, "properties": {}})
        taken: list[int] = []

        def take() -> None:
            try:
                while True:
                    taken.append(channel._get("pagoda")["body"])
            except Empty:
                return

        threads = [threading.Thread(target=take) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert sorted(taken) == list(range(100))


def test_an_exchange_that_others_make_at_the_same_moment_keeps_its_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(tmp_path) as connection:
        channel = connection.channel()
        link = os.link

        def be_second(source: Path, target: Path) -> None:
            filesystem.Channel._queue_bind(channel, "pagoda", "first", "", "first")
            link(source, target)

        monkeypatch.setattr(os, "link", be_second)
        channel._queue_bind("pagoda", "second", "", "second")
        assert {each.queue for each in channel.get_table("pagoda")} == {"first", "second"}
    assert [each.name for each in (tmp_path / "control").iterdir()] == ["pagoda.exchange"]
