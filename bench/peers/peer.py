"""Our end of a peer: start its process, send it rounds, read what they took; and what it takes of the machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.ending import ends_with_us
from bench.memory import resident_bytes

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S, ROUND_TIMEOUT_S = 600.0, 900.0
LONGEST_LINE = 1 << 24
LONGEST_REASON = 300


class PeerFailed(RuntimeError):
    """A peer cannot be installed, does not start or ended in a round; the message is its own last word."""


@dataclass(frozen=True)
class Round:
    """What a round took, and the answers' tokens in the order of the prompts."""

    seconds: float
    token_ids: list[list[int]]


class Peer:
    """A child process, which ends with this one at the latest. Use as an async context manager; entering waits until
    its model is loaded.

    command: what runs ``bench.peers.child.serve``. environment: variables on top of our own.
    start_s: from the start of the process until it could take requests. about: what it told of its configuration.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.start_s = 0.0
        self.about: dict[str, Any] = {}
        self._command = command
        self._environment = dict(environment or {})

    async def __aenter__(self) -> Peer:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed at the exit)
        begin = time.perf_counter()
        self._process = await asyncio.create_subprocess_exec(
            *ends_with_us(self._command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | self._environment,
            limit=LONGEST_LINE,
            start_new_session=True,
        )
        try:
            self.about = await self._read(START_TIMEOUT_S)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        self.start_s = time.perf_counter() - begin
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # with every process that it has started
        await self._process.wait()
        self._log.close()

    async def run_round(self, prompts: Sequence[Sequence[int]], outputs: Sequence[int]) -> Round:
        """All prompts at once, each to exactly its number of output tokens. Raises PeerFailed."""
        assert self._process.stdin is not None
        work = {"prompts": [list(prompt) for prompt in prompts], "outputs": list(outputs)}
        with contextlib.suppress(ConnectionError):  # reading tells why
            self._process.stdin.write(json.dumps(work).encode() + b"\n")
            await self._process.stdin.drain()
        return Round(**await self._read(ROUND_TIMEOUT_S))

    def resident_bytes(self) -> int:
        """Main memory of the process and those it has started."""
        return resident_bytes(self._process.pid)

    async def _read(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise PeerFailed(f"no answer in {timeout_s:.0f} s") from None
        if not line:
            status = await self._process.wait()
            self._log.seek(0)
            raise PeerFailed(f"ended with status {status}: {last_word(self._log.read().decode(errors='replace'))}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def last_word(output: str) -> str:
    """The error in what a program printed: the last line that names one, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "rror:" in line or line.startswith("ERROR")]
    return (errors or lines or ["it said nothing"])[-1][:LONGEST_REASON]
