"""The paper's other baseline: FasterTransformer under a scheduler that batches whole requests (section 6.1)."""

from __future__ import annotations

from collections import deque

from bench.simulation.job import Job
from bench.simulation.work import MemoryUse, StepWork


class StaticBatchingSystem:
    """Takes up to ``most_rows`` sequences of the earliest requests, and runs them until the last of them has ended:
    then all are answered, and the next batch begins.

    Prompts are padded to the longest of the batch, and a sequence that has ended is computed on with the others. The
    longest prompt and the longest output of a batch are together no longer than ``longest``.
    """

    def __init__(self, slots: int, longest: int, most_rows: int) -> None:
        self._slots, self._longest = slots, longest
        self._most_rows = most_rows
        self._waiting: deque[Job] = deque()
        self._batch: list[Job] = []
        self._rows = self._prompt = self._output = self._done = 0

    @property
    def running(self) -> int:
        return len(self._batch)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def arrive(self, job: Job, now: float) -> None:
        if job.width > self._most_rows or job.prompt + job.output > self._longest:
            job.end_s, job.error = now, "larger than the memory"
            return
        self._waiting.append(job)

    def begin_step(self, now: float) -> StepWork | None:
        if self._batch:
            context = self._rows * (self._prompt + self._done)
            return StepWork(rows=self._rows, context=context, siblings=self._rows - len(self._batch))
        self._prompt = self._output = 0
        while self._waiting and self._fits(self._waiting[0]):
            job = self._waiting.popleft()
            self._batch.append(job)
            self._rows += job.width
            self._prompt, self._output = max(self._prompt, job.prompt), max(self._output, job.output)
        if not self._batch:
            return None
        padded = self._rows * self._prompt
        return StepWork(
            prompt_tokens=padded,
            prompt_pairs=padded * self._prompt / 2,
            prompt_rows=self._rows,
            siblings=self._rows - len(self._batch),
        )

    def _fits(self, job: Job) -> bool:
        longest = max(self._prompt, job.prompt) + max(self._output, job.output)
        return self._rows + job.width <= self._most_rows and longest <= self._longest

    def end_step(self, now: float) -> list[Job]:
        self._done += 1
        if self._done == 1:
            for job in self._batch:
                job.first_token_s = now
        if self._done < self._output:
            return []
        ended, self._batch = self._batch, []
        self._rows = self._done = 0
        for job in ended:
            job.end_s = now
        return ended

    def memory(self) -> MemoryUse:
        own = [(job.width, job.prompt, job.output) for job in self._batch]
        final = sum(width * (prompt + output) for width, prompt, output in own)
        tokens = sum(width * (prompt + min(output, self._done)) for width, prompt, output in own)
        reserved = self._rows * (self._prompt + self._output)
        return MemoryUse(tokens, final - tokens, reserved - final, self._slots - reserved)

    def sharing(self) -> tuple[int, int]:
        held = self._rows * (self._prompt + self._done)
        return held, held
