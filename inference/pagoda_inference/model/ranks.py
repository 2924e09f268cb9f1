"""The processes of a tensor parallel model, from the first of them: begun, told what to do, and noticed when they end.

Rank 0 is the engine. It tells the others what to do through pipes, in order, before it does the same itself; within a
step they meet in torch.distributed's collectives. Pipes have no timeouts that an idle engine runs into, and break at
once when a process ends. All ranks are on one machine.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from pagoda_inference import logs
from pagoda_inference.model.errors import BackendLost
from pagoda_inference.model.step_arrays import StepArrays

logger = logging.getLogger(__name__)

TIMEOUT_S = 300.0
"""How long a rank waits for another that is alive: for its weights, or in a step."""
_EXIT_S = 2.0
"""How long a process whose pipe or connection broke may take to be gone."""
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Job:
    """What a rank is told first. device: cpu, or cuda for the GPU of its own number; meeting: file of the first
    rendezvous; the rest as ``load_model`` has it."""

    rank: int
    count: int
    meeting: Path
    source: str
    dtype: str
    device: str
    block_size: int
    context_length: int | None
    home: Path

    @property
    def own_device(self) -> str:
        return f"cuda:{self.rank}" if self.device == "cuda" else self.device


@dataclass(frozen=True, slots=True)
class Run:
    step: StepArrays


@dataclass(frozen=True, slots=True)
class Copy:
    pairs: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Read:
    """after: how many Run and Copy a rank must have begun before."""

    after: int
    ids: list[int]


@dataclass(frozen=True, slots=True)
class Write:
    after: int
    ids: list[int]
    payloads: list[bytes]


@dataclass(frozen=True, slots=True)
class Failed:
    """Instead of an answer: one sentence."""

    reason: str


def join(job: Job) -> None:
    """Meet the other ranks. Nothing listens beyond this machine."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    distributed.init_process_group(
        "nccl" if job.device == "cuda" else "gloo",
        store=distributed.FileStore(str(job.meeting), job.count),
        rank=job.rank,
        world_size=job.count,
        timeout=timedelta(seconds=TIMEOUT_S),
        device_id=torch.device(job.own_device) if job.device == "cuda" else None,
    )


class _Rank:
    """Another rank's process, from rank 0: ``steps`` goes to its main thread, ``transfers`` to the one for blocks."""

    def __init__(self, job: Job) -> None:
        self.number = job.rank
        self.steps, steps = Pipe()
        self.transfers, transfers = Pipe()
        descriptors = (steps.fileno(), transfers.fileno())
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pagoda_inference.model.rank_process", *map(str, descriptors)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LOCAL_RANK": str(job.rank)},
            start_new_session=True,  # an interrupt from the terminal is rank 0's to answer
        )
        steps.close()
        transfers.close()
        self.send(self.steps, job)

    def send(self, connection: Connection, command: Any) -> None:
        """Raises BackendLost where it has ended."""
        try:
            connection.send(command)
        except OSError:
            raise self.lost() from None

    def answer(self, connection: Connection) -> Any:
        """Its next answer. Raises BackendLost where none comes any more, or it is a failure."""
        latest = time.monotonic() + TIMEOUT_S
        while not connection.poll(_POLL_S):
            if self.process.poll() is not None or time.monotonic() > latest:
                raise self.lost()
        try:
            answer = connection.recv()
        except (EOFError, OSError):
            raise self.lost() from None
        if isinstance(answer, Failed):
            raise BackendLost(answer.reason)
        return answer

    def lost(self) -> BackendLost:
        try:
            code = self.process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            return BackendLost(f"Rank {self.number} of the model gave no answer within {TIMEOUT_S:.0f} s.")
        lost = BackendLost(f"Rank {self.number} of the model has ended (exit code {code}): its log says why.")
        logs.failure(logger, "rank_lost", lost, rank=self.number, exit_code=code)
        return lost


class Ranks:
    """The other ranks, from rank 0. Begins their processes, and joins them; BackendLost where one of them ends.

    ``tell`` and ``check`` are the engine thread's, ``read_blocks`` and ``write_blocks`` anybody's.
    """

    def __init__(self, count: int, make_job: Callable[[int, Path], Job]) -> None:
        self.count = count
        self._folder = tempfile.TemporaryDirectory(prefix="pagoda-ranks-")
        self._told = 0
        self._transferring = threading.Lock()
        meeting = Path(self._folder.name) / "meeting"
        self.job = make_job(0, meeting)
        self._ranks: list[_Rank] = []
        try:
            for rank in range(1, count):
                self._ranks.append(_Rank(make_job(rank, meeting)))
            self.answers()  # each has its libraries
            join(self.job)
        except BaseException:
            self.close()
            raise

    def answers(self) -> list[Any]:
        """The next answer of each rank's main thread."""
        return [rank.answer(rank.steps) for rank in self._ranks]

    def tell(self, command: Any) -> None:
        """Have every rank do something, after what it was told before. Does not wait for it."""
        if isinstance(command, Run | Copy):
            self._told += 1
        for rank in self._ranks:
            rank.send(rank.steps, command)

    def check(self) -> None:
        """Raises BackendLost where a rank has ended."""
        for rank in self._ranks:
            if rank.process.poll() is not None:
                raise rank.lost()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what all ranks do at once: where it fails here, the others wait for what will not come, so that it is
        the end of them all."""
        try:
            yield
        except Exception as error:
            if (rank := self._ended()) is not None:
                raise rank.lost() from error
            reason = (str(error).strip().splitlines() or [""])[0]
            raise BackendLost(f"A step failed on one of several ranks ({type(error).__name__}: {reason}).") from error

    def _ended(self) -> _Rank | None:
        """A rank that has ended, or does so within a moment."""
        for _ in range(int(_EXIT_S / _POLL_S)):
            for rank in self._ranks:
                if rank.process.poll() is not None:
                    return rank
            time.sleep(_POLL_S)
        return None

    def read_blocks(self, ids: Sequence[int]) -> list[list[bytearray]]:
        """Each rank's payloads, in the order of the ranks."""
        return self._transfer(lambda after: Read(after, list(ids)))

    def write_blocks(self, ids: Sequence[int], payloads: Sequence[Sequence[memoryview]]) -> None:
        """payloads: each rank's. They are everywhere when this returns."""
        parts = iter(payloads)
        self._transfer(lambda after: Write(after, list(ids), [bytes(part) for part in next(parts)]))

    def _transfer(self, command: Callable[[int], Any]) -> list[Any]:
        with self._transferring:
            try:
                after = self._told
                for rank in self._ranks:
                    rank.send(rank.transfers, command(after))
                return [rank.answer(rank.transfers) for rank in self._ranks]
            except BackendLost as error:
                raise RuntimeError(f"KV could not be moved: {error}") from error  # the next step ends the engine

    def close(self) -> None:
        """End the processes, and leave their group."""
        for rank in self._ranks:
            rank.steps.close()
            rank.transfers.close()
        for rank in self._ranks:
            try:
                rank.process.wait(_EXIT_S)
            except subprocess.TimeoutExpired:
                rank.process.kill()
                rank.process.wait()
        if distributed.is_initialized():
            distributed.destroy_process_group()
        self._folder.cleanup()
