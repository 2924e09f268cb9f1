"""Our side of a benchmark: the real daemon in a process of its own, driven over its socket."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from bench.ending import ends_with_us
from pagoda_inference.client import EngineClient
from pagoda_inference.protocol import Delta, Finished, Generate, PoolReport, Sampling

READY_TIMEOUT_S = 300
REPORT_INTERVAL_S = 0.2


@dataclass(frozen=True)
class Answer:
    """Times in seconds since the requests were sent; ``token_times`` has one entry per output token."""

    first_token_s: float
    end_s: float
    output_tokens: int
    cached_tokens: int
    token_ids: tuple[int, ...]
    token_times: tuple[float, ...]


class Daemon:
    """``pagoda-inference serve`` on a socket in a temporary folder. Use as an async context manager; entered again, it
    is started again. It ends with this process at the latest.

    tier_folder: where its disk tier lies, if ``flags`` give it one; by default in the temporary folder, never where
    another engine of this machine keeps its own.
    """

    def __init__(self, *flags: str, tier_folder: Path | None = None) -> None:
        self._flags = flags
        self._tier_folder = tier_folder
        self._ids = itertools.count()

    async def __aenter__(self) -> Daemon:
        self._folder = tempfile.TemporaryDirectory(prefix="pagoda-bench-")
        address = f"unix:{self._folder.name}/engine.sock"
        command = [str(Path(sys.executable).with_name("pagoda-inference")), "serve", "--address", address, *self._flags]
        quiet = asyncio.subprocess.DEVNULL
        environment = os.environ | {"PAGODA_ENGINE_TIER_FOLDER": str(self._tier_folder or f"{self._folder.name}/kv")}
        self.client = EngineClient(address)
        self._process = await asyncio.create_subprocess_exec(
            *ends_with_us(command), stdout=quiet, stderr=quiet, env=environment
        )
        try:
            await self._connect(command)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()
        self._folder.cleanup()

    async def _connect(self, command: Sequence[str]) -> None:
        """Wait until the engine is ready. Raises RuntimeError where it ends instead."""
        connected = asyncio.ensure_future(self.client.connect(timeout=READY_TIMEOUT_S))
        ended = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({connected, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                status = ended.result()
                raise RuntimeError(f"the engine ended with status {status}; try it by hand: {' '.join(command)}")
            await connected
        finally:
            connected.cancel()
            ended.cancel()

    async def generate(self, prompts: Sequence[Sequence[int]], outputs: Sequence[int]) -> list[Answer]:
        """Send all prompts at once; each runs to exactly its number of output tokens."""
        pairs = zip(prompts, outputs, strict=True)
        return await asyncio.gather(*(self.answer(prompt, count) for prompt, count in pairs))

    async def answer(self, prompt: Sequence[int], count: int, account: str = "bench") -> Answer:
        """One request of a tenant, to exactly ``count`` output tokens. It ends with the task that waits for it."""
        begin = time.perf_counter()
        command = Generate(
            id=f"bench-{next(self._ids)}",
            account=account,
            scope=f"tenant:{account}",
            prompt_token_ids=tuple(prompt),
            sampling=Sampling(max_tokens=count, ignore_eos=True),
            request_class="api",
            on_disconnect="cancel",
        )
        tokens: list[int] = []
        times: list[float] = []
        with self.client.generate(command) as events:
            async for event in events:
                if isinstance(event, Delta):
                    tokens.extend(event.token_ids)
                    times.extend([time.perf_counter() - begin] * len(event.token_ids))
                elif isinstance(event, Finished):
                    if event.error is not None:
                        raise RuntimeError(event.error.message)
                    await self.client.acknowledge(command.id, command.account, event.seq)
                    usage = event.usage
        end = time.perf_counter() - begin
        first = times[0] if times else end
        return Answer(first, end, usage.output_tokens, usage.cached_tokens, tuple(tokens), tuple(times))

    async def report(self) -> PoolReport:
        """The pool between two steps, now."""
        return await self.until(lambda report: True)

    async def until(self, reached: Callable[[PoolReport], bool], timeout_s: float = 300.0) -> PoolReport:
        """The first report of the pool that is as wanted; TimeoutError if none is."""
        async with asyncio.timeout(timeout_s):
            async for report in self.client.watch(REPORT_INTERVAL_S):
                if reached(report):
                    return report
        raise RuntimeError("the engine gave no report")
