"""The paper's Orca baselines: iteration-level scheduling over contiguous memory, reserved when a request begins."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from bench.simulation.beams import copied_beams
from bench.simulation.buddy import BuddyAllocator
from bench.simulation.job import Job
from bench.simulation.work import MemoryUse, StepWork

Reservation = Callable[[Job], int]
"""Token slots that one sequence of a job reserves."""


def reserve_most(longest: int) -> Reservation:
    """Orca (Max): the longest sequence that the model allows."""
    return lambda job: longest


def reserve_power_of_two(longest: int) -> Reservation:
    """Orca (Pow2): the prompt, and the output's length rounded up to a power of two; never more than the longest."""
    return lambda job: min(longest, job.prompt + BuddyAllocator.chunk_size(job.output))


def reserve_exactly(longest: int) -> Reservation:
    """Orca (Oracle): as many as the sequence will have, as if that were known."""
    return lambda job: min(longest, job.prompt + job.output)


@dataclass(frozen=True)
class RowLimits:
    """Of a step. rows: sequences. tokens: of prompts that are computed, and one for each sequence that decodes."""

    rows: int
    tokens: int


class ContiguousSystem:
    """First come, first served: the head of the queue begins when every one of its sequences gets its chunk.

    Nothing is shared: each sequence of a job has the prompt's KV for itself. The prompt is computed once for all of
    them, which favours this baseline. A beam that goes on from another's copies all that the other has reserved, as
    the authors' Orca does. block_size: the authors' Orca runs on their own paged kernel, with tables of such blocks
    that lie one after the other, and pays what the kernel costs; 0 is a kernel for contiguous KV.
    """

    def __init__(self, slots: int, reservation: Reservation, limits: RowLimits, *, block_size: int = 0) -> None:
        self._buddy = BuddyAllocator(slots)
        self._reservation = reservation
        self._limits = limits
        self._block_size = block_size
        self._waiting: deque[Job] = deque()
        self._chunks: dict[Job, list[int]] = {}
        self._new: list[Job] = []
        self._ends: list[tuple[int, int, Job]] = []
        """(step after which it has all its tokens, number, job): a heap."""
        self._steps = 0
        self._rows = self._used = self._final = self._reserved = 0
        self._searches: Counter[int] = Counter()
        """Width -> beam searches of it that run."""

    @property
    def running(self) -> int:
        return len(self._chunks)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def arrive(self, job: Job, now: float) -> None:
        reserved = self._reservation(job)
        if job.prompt + job.output > reserved:
            job.end_s, job.error = now, "longer than the longest sequence"
            return
        if self._buddy.chunk_size(reserved) * job.width > self._buddy.slots:
            job.end_s, job.error = now, "larger than the memory"
            return
        self._waiting.append(job)

    def begin_step(self, now: float) -> StepWork | None:
        work = StepWork(rows=self._rows, context=self._used, block_size=self._block_size)
        if copies := sum(count * copied_beams(width) for width, count in self._searches.items()):
            work.copies = copies
            work.copied_tokens = round(copies * self._reserved / self._rows)
        while self._waiting and self._admit(self._waiting[0], work):
            self._new.append(self._waiting.popleft())
        self._steps += 1
        work.siblings = self._rows - len(self._chunks)
        return work if self._chunks else None

    def _admit(self, job: Job, work: StepWork) -> bool:
        tokens = work.rows + work.prompt_tokens
        if self._rows + job.width > self._limits.rows or (tokens and tokens + job.prompt > self._limits.tokens):
            return False
        slots = self._reservation(job)
        chunks: list[int] = []
        for _ in range(job.width):
            chunk = self._buddy.allocate(slots)
            if chunk is None:
                for begin in chunks:
                    self._buddy.free(begin, slots)
                return False
            chunks.append(chunk)
        self._chunks[job] = chunks
        self._count(job, 1)
        self._used += job.width * job.prompt
        work.prompt_tokens += job.prompt
        work.prompt_pairs += job.prompt * job.prompt / 2
        work.prompt_rows += job.width
        return True

    def _count(self, job: Job, sign: int) -> None:
        self._rows += sign * job.width
        if job.beam_width > 1:
            self._searches[job.beam_width] += sign
        self._final += sign * job.width * (job.prompt + job.output)
        self._reserved += sign * job.width * self._reservation(job)

    def end_step(self, now: float) -> list[Job]:
        """Every running sequence has one token more: those that began with the step have their first."""
        for job in self._new:
            job.first_token_s = now
            heappush(self._ends, (self._steps + job.output - 1, job.number, job))
        self._new.clear()
        self._used += self._rows
        ended = []
        while self._ends and self._ends[0][0] <= self._steps:
            ended.append(job := heappop(self._ends)[2])
            job.end_s = now
            self._used -= job.width * (job.prompt + job.output)
            self._count(job, -1)
            for begin in self._chunks.pop(job):
                self._buddy.free(begin, self._reservation(job))
        return ended

    def memory(self) -> MemoryUse:
        return MemoryUse(
            tokens=self._used,
            reservation=self._final - self._used,
            internal=self._reserved - self._final,
            external=self._buddy.slots - self._reserved,
        )

    def sharing(self) -> tuple[int, int]:
        return self._used, self._used
