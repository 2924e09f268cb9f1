"""An installation for a benchmark: engine, web process and worker, each in a process of its own, on SQLite."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.daemon import Daemon
from bench.ending import ends_with_us

ROOT = Path(__file__).parents[1]
READY_S = 120.0
TENANT = "acme"


@dataclass(frozen=True)
class Installation:
    """Where its API is, a client's key, the model that it serves, and its web process."""

    api: str
    key: str
    model: str
    web_pid: int

    def client(self) -> httpx.AsyncClient:
        """With connections enough for whatever is in flight."""
        limits = httpx.Limits(max_connections=None)
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.AsyncClient(base_url=self.api, headers=headers, limits=limits, timeout=600, trust_env=False)


@asynccontextmanager
async def installation() -> AsyncIterator[Installation]:
    """Runs for as long as the block does. Raises RuntimeError where a part ends or does not become ready."""
    async with AsyncExitStack() as stack:
        daemon = await stack.enter_async_context(Daemon())
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pagoda-bench-")))
        port = _free_port()
        environment = os.environ | {
            "PAGODA_HOME": str(home),
            "PAGODA_ENGINES": daemon.client.address.target,
            "PAGODA_PORT": str(port),
            "PAGODA_LOG_LEVEL": "WARNING",
            "DATABASE_URL": "",
            "REDIS_URL": "",
        }
        await _manage(environment, "migrate", "--verbosity", "0")
        await _manage(environment, "demo")
        key = json.loads(await _manage(environment, "key_create", "--tenant", TENANT, "--json"))["key"]
        web = (sys.executable, "-m", "uvicorn", "pagoda.asgi:application", "--port", str(port), "--no-access-log")
        worker = (sys.executable, "-m", "celery", "-A", "pagoda", "worker", "--beat", "--loglevel", "WARNING")
        web_pid = await stack.enter_async_context(_running(web, environment))
        await stack.enter_async_context(_running(worker, environment))
        api = f"http://127.0.0.1:{port}/v1"
        yield Installation(api, key, await _model(api, key), web_pid)


@asynccontextmanager
async def _running(command: Sequence[str], environment: dict[str, str]) -> AsyncIterator[int]:
    """Yields the process' id."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *ends_with_us(command), cwd=ROOT, env=environment, stdout=quiet, stderr=quiet
    )
    try:
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _manage(environment: dict[str, str], *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "manage.py", *arguments),
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaints = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"manage.py {arguments[0]} failed: {complaints.decode()[-500:]}")
    return output.decode()


async def _model(api: str, key: str) -> str:
    deadline = time.monotonic() + READY_S
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, trust_env=False) as client:
        while time.monotonic() < deadline:
            try:
                models = (await client.get(f"{api}/models")).json()["data"]
                if models:
                    return str(models[0]["id"])
            except (httpx.HTTPError, KeyError, ValueError):
                pass
            await asyncio.sleep(0.1)
    raise RuntimeError("the web process did not become ready")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
