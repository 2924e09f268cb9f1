"""The parts of an installation: which processes `manage.py up` runs, and how."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from pagoda_inference.address import default_address

MAX_WEBSOCKET_FRAME = 1024 * 1024
"""Bytes of one websocket message (docs/websocket.md)."""


@dataclass(frozen=True)
class Part:
    """One supervised process. ``stop_wait_s``: from SIGTERM until it is killed."""

    name: str
    command: tuple[str, ...]
    stop_wait_s: int = 10


def inference_command() -> str:
    """`pagoda-inference` beside the interpreter that runs us."""
    return str(Path(sys.executable).parent / "pagoda-inference")


def runs_own_engine() -> bool:
    """Whether the engine is this installation's own: not when PAGODA_ENGINES names others."""
    return list(settings.PAGODA_ENGINES) == [default_address(settings.PAGODA_HOME)]


def parts() -> list[Part]:
    """In the order they start. They stop in the reverse one: what asks before what answers."""
    web = (
        sys.executable, "-m", "uvicorn", "pagoda.asgi:application",
        "--host", settings.PAGODA_HOST, "--port", str(settings.PAGODA_PORT),
        "--ws-max-size", str(MAX_WEBSOCKET_FRAME),
        "--timeout-graceful-shutdown", "5",
        "--no-access-log", "--no-server-header",
    )  # fmt: skip
    worker = (sys.executable, "-m", "celery", "-A", "pagoda", "worker", "--beat", "--loglevel", "INFO")
    # Lines of batches that are in flight come to their end first; what else the worker does then takes seconds.
    started = [Part("web", web), Part("worker", worker, stop_wait_s=settings.PAGODA_BATCH_GRACE_S + 15)]
    if runs_own_engine():
        # Every tenant has an account: a request for any other is a mistake, never a silent default.
        engine = (inference_command(), "serve", "--require-accounts", "--address", settings.PAGODA_ENGINES[0])
        started.insert(0, Part("engine", engine))
    return started
