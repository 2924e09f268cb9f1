"""Pagoda's web tier in processes of its own, as `manage.py up` starts it, over an engine that runs already."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.ending import ends_with_us
from bench.http_client import Connection

MANAGE = Path(__file__).resolve().parents[1] / "manage.py"
READY_TIMEOUT_S = 300
TENANT = "acme"


class Installation:
    """A new one in a temporary folder: SQLite, no Redis, the demo tenants. Use as an async context manager.

    engine: the address of the engine that it asks. port: where it listens, on 127.0.0.1.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine

    async def __aenter__(self) -> Installation:
        self._folder = tempfile.TemporaryDirectory(prefix="pagoda-bench-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE} | {
            "PAGODA_HOME": self._folder.name,
            "PAGODA_PORT": str(self.port),
            "PAGODA_ENGINES": self._engine,
        }
        quiet = asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(
            *ends_with_us([sys.executable, str(MANAGE), "up", "--stop-with-parent"]),
            stdout=quiet, stderr=quiet, env=self._environment,
        )  # fmt: skip
        try:
            await self._until_ready()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        await self._process.wait()
        self._folder.cleanup()

    async def make_key(self, *options: str) -> str:
        """An API key of the first demo tenant. options: as of `manage.py key_create`."""
        command = (sys.executable, str(MANAGE), "key_create", "--tenant", TENANT, "--json", *options)
        made = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=self._environment)
        output, _ = await made.communicate()
        answer: dict[str, Any] = json.loads(output)
        return str(answer["key"])

    async def make_tenants(self, names: Sequence[str]) -> dict[str, str]:
        """A new tenant for each name, without quotas of its own, and an API key of each: by the names."""
        command = (sys.executable, str(MANAGE), "shell", "--no-imports", "--verbosity", "0", "-c", _MAKE_TENANTS)
        made = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=self._environment
        )
        output, _ = await made.communicate(json.dumps(list(names)).encode())
        if made.returncode:
            raise RuntimeError(f"the tenants could not be made: manage.py shell ended with status {made.returncode}")
        keys: dict[str, str] = json.loads(output)
        return keys

    async def _until_ready(self) -> None:
        """Raises RuntimeError where it ends instead, TimeoutError where it takes too long."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not await self._is_ready():
            if self._process.returncode is not None:
                raise RuntimeError(f"the installation ended with status {self._process.returncode}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the installation was not ready after {READY_TIMEOUT_S} s")
            await asyncio.sleep(0.2)

    async def _is_ready(self) -> bool:
        try:
            async with Connection(self.port, "") as connection:
                return await connection.get("/readyz") == 200
        except (OSError, asyncio.IncompleteReadError):
            return False


_MAKE_TENANTS = """
import json, sys
from pagoda.tenants.keys import create_key
from pagoda.tenants.models import Tenant
keys = {}
for number, name in enumerate(json.load(sys.stdin)):
    tenant = Tenant.objects.create(slug=f"bench-{number}", name=name)
    keys[name] = create_key(tenant.id, "bench", created_by=None)[1]
print(json.dumps(keys))
"""
"""Names on standard input, keys on standard output: one process for all of them."""

_ELSEWHERE = ("DATABASE_URL", "REDIS_URL", "PAGODA_SITE_URL", "PAGODA_MODEL")
"""What would make it another installation than the usual."""
