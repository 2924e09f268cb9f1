"""Processes that carry batches out, and can be killed: the task alone, and a whole worker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from django.conf import settings
from django.db import connections

_TASK = "import django; django.setup(); from pagoda.batches.tasks import run_batches; run_batches()"
_SEND = "import sys; from pagoda.celery import app; [app.send_task(name) for name in sys.argv[1:]]"


def database_url() -> str:
    """The test's database, for another process."""
    database = connections["default"].settings_dict
    if connections["default"].vendor == "sqlite":
        return f"sqlite:///{database['NAME']}"
    password = quote(database["PASSWORD"] or "", safe="")
    return f"postgresql://{database['USER']}:{password}@{database['HOST']}:{database['PORT']}/{database['NAME']}"


@asynccontextmanager
async def worker_process(**variables: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs the task once; killed at the end of the block, as the kernel does when memory runs out."""
    async with _process("-c", _TASK, **variables) as process:
        yield process


@asynccontextmanager
async def whole_worker(**variables: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Celery's worker in a process group of its own, told to look for batches; killed at the end of the block where it
    has not ended."""
    async with _process("-m", "celery", "-A", "pagoda", "worker", "--concurrency", "2", **variables) as process:
        await send("batches.run")
        yield process


async def send(*tasks: str) -> None:
    """Have the worker carry tasks out, by their names."""
    async with _process("-c", _SEND, *tasks) as sending:
        assert await sending.wait() == 0


@asynccontextmanager
async def _process(*arguments: str, **variables: str) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = os.environ | {
        "DATABASE_URL": database_url(),
        "REDIS_URL": "",
        "PAGODA_HOME": str(settings.PAGODA_HOME),
        "PAGODA_ENGINES": ",".join(settings.PAGODA_ENGINES),
        "DJANGO_SETTINGS_MODULE": "pagoda.settings",
        **variables,
    }
    log = Path(settings.PAGODA_HOME, "worker.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    file = await asyncio.to_thread(log.open, "ab")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=environment, stdout=file, stderr=file, process_group=0
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        file.close()
