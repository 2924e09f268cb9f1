"""One supervisor: what dies is restarted, what is stopped leaves nothing."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from pagoda.operations.orphans import descendants
from pagoda.operations.parts import Part
from pagoda.operations.supervision import Supervisor

T = TypeVar("T")

# Each part starts a child of its own, as the worker does.
SLEEPER = "import subprocess, sys; print('begun', flush=True); subprocess.run(['sleep', '600'])"


def until(condition: Callable[[], T], timeout_s: float = 60) -> T:
    """What ``condition`` gives once it is true."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return value


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    parts = [Part(name, (sys.executable, "-c", SLEEPER), stop_wait_s=2) for name in ("engine", "web")]
    supervisor = Supervisor(tmp_path / "home with 100% spaces", parts, dict(os.environ))
    yield supervisor
    supervisor.stop()


def running(supervisor: Supervisor) -> dict[str, int]:
    """Part -> pid, once all are up."""
    states = supervisor.states()
    return {part.name: part.pid for part in states} if all(part.pid for part in states) else {}


def test_a_part_that_is_killed_comes_back_and_its_rival_is_left_alone(supervisor: Supervisor) -> None:
    supervisor.start()
    before = until(lambda: running(supervisor))
    os.kill(before["engine"], signal.SIGKILL)
    after = until(lambda: (now := running(supervisor)) and now["engine"] != before["engine"] and now)
    assert after["web"] == before["web"]


def test_stop_leaves_no_process(supervisor: Supervisor) -> None:
    supervisor.start()
    until(lambda: running(supervisor))
    started = until(lambda: len(found := descendants(os.getpid())) >= 5 and found)
    supervisor.stop()
    assert not [pid for pid in started if alive(pid)]


def test_stop_leaves_no_process_after_the_supervisor_itself_was_killed(supervisor: Supervisor) -> None:
    supervisor.start()
    until(lambda: running(supervisor))
    started = until(lambda: len(found := descendants(os.getpid())) >= 5 and found)
    os.kill(int((supervisor.configuration_path.parent / "supervisord.pid").read_text()), signal.SIGKILL)
    until(lambda: supervisor.exit_status() is not None)
    supervisor.stop()
    assert not [pid for pid in started if alive(pid)]


def test_a_parts_output_is_kept_for_whoever_asks_why(supervisor: Supervisor) -> None:
    supervisor.start()
    # A line may arrive in pieces.
    assert until(lambda: (tail := supervisor.log_tail("web")).endswith("\n") and tail) == "begun\n"
    assert supervisor.log_path("web").stat().st_mode & 0o077 == 0, "logs are for the owner alone"


def test_what_a_killed_part_leaves_behind_is_collected_while_the_others_run(supervisor: Supervisor) -> None:
    supervisor.start()
    worker = until(lambda: next((part.pid for part in supervisor.states() if part.name == "web" and part.pid), None))
    [child] = until(lambda: descendants(worker))
    os.kill(worker, signal.SIGKILL)
    until(lambda: Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()))
    os.kill(child, signal.SIGKILL)
    until(lambda: not alive(child))
    assert supervisor.exit_status() is None
    assert not Path(f"/proc/{child}").exists()
