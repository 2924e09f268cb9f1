"""A whole Pagoda for one test run: `manage.py up` on a free port with a PAGODA_HOME of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pagoda_inference.address import default_address
from pagoda_inference.client import SyncEngineClient
from pagoda_inference.protocol import PoolReport

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sys.executable
START_TIMEOUT_S = 240.0
PATIENCE_S = 60.0
"""For whatever takes well under a second on a machine with nothing else to do."""

T = TypeVar("T")


def _like_a_terminal() -> None:
    """Ctrl-C is heard, also where the tests themselves run in the background and ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def until(condition: Callable[[], T], timeout_s: float, what: str) -> T:
    """What ``condition`` gives once it is true; fails with ``what`` after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {timeout_s:.0f} s: {what}"
        time.sleep(0.05)
    return value


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def processes_of(home: Path) -> list[int]:
    """Every living process that was started for this PAGODA_HOME, by its environment."""
    entry = f"PAGODA_HOME={home}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            zombie = " Z " in (folder / "stat").read_text().rpartition(")")[2][:4]
            if not zombie and entry in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


class Stack:
    """`manage.py up` as a process group, like a command typed in a terminal."""

    def __init__(self, home: Path, model: str, command: tuple[str, ...] = (PYTHON, "manage.py", "up")) -> None:
        self.home = home
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = command
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PAGODA_", "DJANGO_"))}
        for name in ("DATABASE_URL", "REDIS_URL"):
            ours.pop(name, None)
        self.environment = ours | {"PAGODA_HOME": str(home), "PAGODA_PORT": str(self.port), "PAGODA_MODEL": model}
        self.output = home.parent / f"{home.name}.up.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Returns the seconds it took until Pagoda said that it is ready."""
        begun = time.monotonic()
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_like_a_terminal,
            )  # fmt: skip
        until(self._said_ready, START_TIMEOUT_S, "Pagoda is not ready")
        return time.monotonic() - begun

    def _said_ready(self) -> bool:
        text = self.output.read_text()
        assert self.process is not None
        assert self.process.poll() is None, f"`up` ended with {self.process.returncode}:\n{text}"
        return f"Pagoda is ready: {self.url}\n" in text

    def interrupt(self) -> int:
        """Ctrl-C in the terminal: SIGINT to the whole group. Returns the exit status."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(180)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(180)

    def manage(self, *arguments: str) -> str:
        """What a management command of this installation prints."""
        command = [PYTHON, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def demo(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.manage("demo", "--json"))
        return found

    def pid(self, part: str) -> int:
        """The present process of a part; 0 while it has none."""
        done = subprocess.run(
            [PYTHON, "-m", "supervisor.supervisorctl", "-c", str(self.home / "run" / "supervisord.conf"), "pid", part],
            cwd=self.home, capture_output=True, text=True,
        )  # fmt: skip
        text = done.stdout.strip()
        return int(text) if text.isdigit() else 0

    def kill(self, part: str) -> None:
        """SIGKILL, as by the kernel when memory runs out."""
        os.kill(until(lambda: self.pid(part), PATIENCE_S, f"{part} does not run"), signal.SIGKILL)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=PATIENCE_S) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def active_blocks(self) -> int:
        """Blocks that tenants' requests hold; what is published stays active."""
        return sum(account.active for account in self.pool().accounts if account.id != "public")

    def pool(self) -> PoolReport:
        """The engine's own report, asked for now."""
        with SyncEngineClient(default_address(self.home)) as client:
            return client.watch_once()

    def metric(self, name: str, **labels: str) -> float:
        """One sample of /metrics."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        for line in text.splitlines():
            match = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
            if match and all(f'{label}="{value}"' in (match[1] or "") for label, value in labels.items()):
                return float(match[2])
        raise AssertionError(f"no sample of {name} with {labels}")
