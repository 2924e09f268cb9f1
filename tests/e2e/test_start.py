"""`manage.py up` as a person runs it: one command starts everything, one Ctrl-C ends everything."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack import PATIENCE_S, PYTHON, ROOT, Stack, processes_of, until

pytestmark = pytest.mark.slow


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Stack]:
    """One of its own, with the echo model: its engine starts in a second or two."""
    stack = Stack(tmp_path / "home", "echo")
    yield stack
    stack.stop()
    for pid in processes_of(stack.home):
        os.kill(pid, signal.SIGKILL)


def refusal(installation: Stack, **changes: str) -> str:
    """What a further `up` says when it does not start: one sentence, never a traceback."""
    environment = installation.environment | changes
    done = subprocess.run([PYTHON, "manage.py", "up"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_it_starts_restarts_what_dies_refuses_a_second_and_leaves_nothing_after_ctrl_c(installation: Stack) -> None:
    first = installation.start()
    assert installation.is_ready()
    demo = installation.demo()
    assert demo["url"] == installation.url
    assert demo["operator"]["password"] in installation.output.read_text()

    for part in ("web", "worker", "engine"):
        before = until(lambda part=part: installation.pid(part), PATIENCE_S, f"no {part}")
        installation.kill(part)
        until(
            lambda part=part, before=before: installation.pid(part) not in (0, before),
            PATIENCE_S,
            f"{part} is not back",
        )
    until(installation.is_ready, PATIENCE_S, "not ready again")

    assert "already runs from" in refusal(installation)
    assert "PAGODA_PORT" in refusal(installation, PAGODA_HOME=str(installation.home.with_name("rival")))

    assert len(processes_of(installation.home)) >= 5
    assert installation.interrupt() == 0
    assert processes_of(installation.home) == []

    seconds = installation.start()
    assert seconds < max(40, first), "there is less to do than at the first, which takes 20 s on an idle machine"
    assert installation.demo() == demo, "logins and keys stay"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_a_signal_to_make_alone_stops_everything_too(
    installation: Stack, tmp_path: Path, number: signal.Signals
) -> None:
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"up:\n\t@exec {PYTHON} manage.py up --stop-with-parent\n")
    installation.command = ("make", "-f", str(makefile), "up")
    installation.start()
    assert installation.process is not None
    installation.process.send_signal(number)
    until(lambda: processes_of(installation.home) == [], PATIENCE_S, "processes are left")
    installation.process.wait(PATIENCE_S)


def test_a_killed_up_takes_everything_with_it(installation: Stack) -> None:
    installation.start()
    assert installation.process is not None
    installation.process.kill()
    until(lambda: processes_of(installation.home) == [], PATIENCE_S, "processes are left")


def test_a_model_that_is_not_there_is_one_clear_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    environment = os.environ | {
        "PAGODA_HOME": str(tmp_path / "home"), "PAGODA_PORT": str(port), "PAGODA_MODEL": str(tmp_path / "nowhere"),
    }  # fmt: skip
    begun = time.monotonic()
    done = subprocess.run([PYTHON, "manage.py", "up"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "nowhere" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert time.monotonic() - begun < 120
