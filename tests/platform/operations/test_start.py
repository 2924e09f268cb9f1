"""What `up` refuses, and how it notices that it should stop. (The whole start is tested in tests/e2e.)"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from pagoda.operations.installation_lock import AlreadyRunning, installation_lock
from pagoda.operations.location import current_location, remember_location
from pagoda.operations.management.commands import up
from pagoda.operations.parts import parts
from pagoda.operations.ports import why_not_listening


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_one_clear_sentence(taken_port: int) -> None:
    assert why_not_listening("127.0.0.1", taken_port) == (
        f"Port {taken_port} is taken by another program: stop it, or choose another port with PAGODA_PORT."
    )


def test_a_free_port_is_fine(taken_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert why_not_listening("127.0.0.1", port) is None


@pytest.mark.parametrize(
    ("host", "port", "variable"), [("127.0.0.1", 70000, "PAGODA_PORT"), ("192.0.2.1", 0, "PAGODA_PORT")]
)
def test_an_impossible_address_names_the_variable(host: str, port: int, variable: str) -> None:
    assert variable in (why_not_listening(host, port) or "")


def test_up_refuses_a_taken_port_before_it_does_anything(taken_port: int, settings, home: Path, monkeypatch) -> None:
    monkeypatch.setattr(up, "signal", lambda *_: None)
    settings.PAGODA_PORT = taken_port
    with pytest.raises(CommandError, match=f"Port {taken_port} is taken"):
        call_command("up")
    assert sorted(path.name for path in home.iterdir()) == ["run"]


def test_a_second_up_of_the_same_home_is_refused_and_one_of_another_is_not(tmp_path: Path) -> None:
    with installation_lock(tmp_path / "a"):
        with pytest.raises(AlreadyRunning, match="already runs from"), installation_lock(tmp_path / "a"):
            pass
        with installation_lock(tmp_path / "b"):
            pass
    with installation_lock(tmp_path / "a"):
        pass


def test_other_commands_find_the_port_that_up_was_given(home: Path, settings, monkeypatch) -> None:
    monkeypatch.delenv("PAGODA_PORT", raising=False)
    monkeypatch.delenv("PAGODA_HOST", raising=False)
    settings.PAGODA_PORT = 8123
    from pagoda.operations.location import configured_location

    remember_location(home, configured_location())
    settings.PAGODA_PORT = 8000
    location = current_location(home)
    assert (location.url, location.ws_url, location.api_base) == (
        "http://127.0.0.1:8123", "ws://127.0.0.1:8123/ws/v1", "http://127.0.0.1:8123/v1",
    )  # fmt: skip


def test_the_engine_is_ours_only_where_no_other_is_named(settings) -> None:
    from pagoda_inference.address import default_address

    settings.PAGODA_ENGINES = [default_address(settings.PAGODA_HOME)]
    assert [part.name for part in parts()] == ["engine", "web", "worker"]
    settings.PAGODA_ENGINES = ["gpu-1:9000", "gpu-2:9000"]
    assert [part.name for part in parts()] == ["web", "worker"]


# A stand-in for make: catches SIGINT, and after one stops catching it and waits for its child, as GNU make does.
PARENT = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, signal.SIG_DFL))
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
child.wait()
"""
CHILD = """
import sys, time
from pagoda.operations.parent import ParentWatch
watch = ParentWatch()
print("watching", flush=True)
while not watch.gave_up():
    time.sleep(0.02)
print("gave up", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_make_alone_is_noticed(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "watching\n"
        parent.send_signal(number)
        assert parent.stdout.readline() == "gave up\n"
