"""The peers' own Python environments: made once from pinned requirements, kept under a folder that is given."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.peers.peer import PeerFailed, last_word

BUILD = {"CMAKE_ARGS": "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF"}
"""What is compiled here is compiled for this processor, and without what no benchmark uses."""


def requirements(name: str) -> Path:
    """The file that pins everything in the environment of a peer."""
    return Path(__file__).with_name(f"{name}.txt")


def python_of(name: str, home: Path, say: Callable[[str], None] = print) -> Path:
    """The interpreter of a peer's environment under ``home``; made where it is not there yet (minutes, once).

    Nothing but what the requirements name is installed: they hold the whole closure. Raises PeerFailed.
    """
    pinned = requirements(name)
    digest = hashlib.sha256(pinned.read_bytes() + platform.python_version().encode()).hexdigest()[:12]
    folder = home / f"{name}-{digest}"
    ready, python = folder / ".ready", folder / "bin/python"
    home.mkdir(parents=True, exist_ok=True)
    with (home / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            say(f"installing {name} in {folder} (once; minutes)")
            shutil.rmtree(folder, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(folder)])
            _run([str(python), "-m", "pip", "install", "--no-deps", "--quiet", "--requirement", str(pinned)])
            ready.touch()
    return python


def _run(command: list[str]) -> None:
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | BUILD)
    if outcome.returncode:
        raise PeerFailed(f"cannot be installed: {last_word(outcome.stderr + outcome.stdout)}")
