"""An engine for tests: the real daemon with the echo model, in this process or as one that can be killed."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from pagoda_inference import daemon
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.echo import END, EchoBackend, EchoTokenizer
from pagoda_inference.protocol import ChatMessage
from pagoda_inference.settings import Settings


def new_address() -> str:
    """A Unix socket of its own, short enough for the kernel."""
    return f"unix:{tempfile.mkdtemp(prefix='pgd')}/e.sock"


@asynccontextmanager
async def serving(address: str, home: Path, *, step_ms: float = 0, **settings: object) -> AsyncIterator[None]:
    """The daemon on this event loop and a thread of this process."""
    options = Settings(home=home, model="echo", address=address, step_ms=step_ms, **settings)  # type: ignore[arg-type]
    stop = asyncio.Event()
    task = asyncio.create_task(daemon.serve(options, stop))
    try:
        yield
    finally:
        stop.set()
        await task


class DaemonProcess:
    """``pagoda-inference serve --model echo`` as a process of its own."""

    def __init__(self, address: str, home: Path, *, step_ms: float) -> None:
        self.step_ms = step_ms
        self._command = (
            *("-c", "from pagoda_inference.command import main; main()", "serve", "--model", "echo"),
            *("--address", address),
        )
        self._environment = os.environ | {"PAGODA_HOME": str(home)}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, *self._command, "--step-ms", str(self.step_ms)),
            env=self._environment,
            stdout=asyncio.subprocess.DEVNULL,
        )

    async def kill(self) -> None:
        """As the kernel does when memory runs out."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    async def _end(self, number: int) -> None:
        if self._process is not None:
            if self._process.returncode is None:
                self._process.send_signal(number)
            await self._process.wait()
            self._process = None


@cache
def echo(question: str) -> tuple[int, str]:
    """Tokens of the prompt, and the echo model's greedy answer to a first question."""
    backend, tokenizer, sampler = EchoBackend(), EchoTokenizer(), Sampler()
    table = list(range(backend.total_blocks))
    prompt = tokenizer.encode_chat([ChatMessage("user", question)])
    answer: list[int] = []
    chunk = Chunk(prompt, 0, table, sampler)
    while (token := backend.run([chunk])[0]) != END:
        assert isinstance(token, int)
        chunk = Chunk([token], len(prompt) + len(answer), table, sampler)
        answer.append(token)
    return len(prompt), tokenizer.decode(answer)


def long_question(least: int = 150, number: int = 0) -> str:
    """A first question with an answer of ``least`` characters or more; ``number`` chooses among several."""
    found = (
        question for index in itertools.count() if len(echo(question := f"Tell me all about {index}.")[1]) >= least
    )
    return next(itertools.islice(found, number, None))
