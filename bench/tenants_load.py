"""A pool with many tenants at work, without a model: 256 requests answer, 2,000 wait, whoever ends is replaced.

32 tenants differ in weight, reservation, limit and class. Each keeps its number of requests: one that ends is followed
by another of the same tenant, so that queues never empty and the load is steady. A tenant's requests begin with its
system prompt; half of them go on in a conversation that it had before, so that they find prefixes of every length.
"""

from __future__ import annotations

import gc
import itertools
import random
import time
from collections import deque

from bench.workloads import HIGHEST_TOKEN, LOWEST_TOKEN, random_tokens, sharegpt_lengths
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.kv.pool import Pool
from pagoda_inference.protocol import Account, RequestClass
from pagoda_inference.scheduling.scheduler import RequestRefused, Scheduler
from pagoda_inference.scheduling.sequence import Request
from pagoda_inference.scheduling.step import Step

TENANTS = 32
RUNNING, WAITING = 256, 2000
CLASSES: tuple[RequestClass, ...] = ("interactive",) * 5 + ("api",) * 2 + ("batch",)
CONVERSATIONS = 8
LONGEST_CONVERSATION = 1024


class Tenant:
    """Draws the requests of one tenant; the length laws are those of the serving benchmark."""

    def __init__(self, index: int, rng: random.Random) -> None:
        self.id = f"tenant-{index}"
        self.request_class = CLASSES[index % len(CLASSES)]
        self._rng = rng
        self._system = random_tokens(rng.randrange(100, 500), rng)
        self._conversations: deque[list[int]] = deque(maxlen=CONVERSATIONS)

    def account(self, index: int, blocks: int) -> Account:
        """Every other tenant has a reservation, every fourth a limit; weights are 1, 2 and 4."""
        return Account(
            self.id,
            reservation=blocks // 64 if index % 2 else 0,
            limit=blocks // 8 if index % 4 == 3 else None,
            weight=float(2 ** (index % 3)),
        )

    def draw(self) -> tuple[list[int], int]:
        """Prompt and number of output tokens of its next request."""
        [(length, output)] = sharegpt_lengths(1, self._rng)
        begin = self._system
        if self._conversations and self._rng.random() < 0.5:
            begin = self._rng.choice(self._conversations)
        return begin + random_tokens(length, self._rng), output

    def remember(self, tokens: list[int]) -> None:
        """A request ended: its next turn may come."""
        if len(tokens) <= LONGEST_CONVERSATION:
            self._conversations.append(list(tokens))


class TenantsLoad:
    """Runs steps of a real scheduler over a real pool and takes the times of each verb (seconds per step)."""

    def __init__(
        self, blocks: int, *, max_running: int, requests: int = RUNNING + WAITING, token_budget: int = 1024
    ) -> None:
        self._rng = random.Random(20260918)
        self.pool = Pool(blocks, 16, secret=b"bench")
        self.scheduler = Scheduler(self.pool, token_budget=token_budget, max_running=max_running)
        self._tenants = {f"tenant-{index}": Tenant(index, self._rng) for index in range(TENANTS)}
        accounts = [tenant.account(index, blocks) for index, tenant in enumerate(self._tenants.values())]
        self.scheduler.set_accounts(accounts, 1)
        self._ids = itertools.count()
        self._clock = 0.0
        self.samples: dict[str, list[float]] = {}
        for index in range(requests):
            tenant = self._tenants[f"tenant-{index % TENANTS}"]
            prompt, output = tenant.draw()
            self._add(tenant, prompt, self._rng.randint(1, output))  # of all ages, as if it had gone on for long

    def run(self, steps: int, *, measured: bool) -> None:
        """So many steps. ``samples`` keeps what is measured."""
        if measured:
            gc.collect()  # what the warm-up left is not the steps' business; from here on as the engine runs
        for _ in range(steps):
            times = self._step()
            if measured:
                for name, value in times.items():
                    self.samples.setdefault(name, []).append(value)

    def hit_ratio(self) -> float:
        """Prompt tokens found in the cache over prompt tokens looked up, of all requests admitted so far."""
        hits = sum(ledger.hit_tokens for ledger in self.pool.accounts)
        return hits / max(1, sum(ledger.queried_tokens for ledger in self.pool.accounts))

    def _step(self) -> dict[str, float]:
        self._clock += 0.03
        begin = time.perf_counter()
        step = self.scheduler.schedule(self._clock)
        scheduled = time.perf_counter()
        results = [self._rng.randrange(LOWEST_TOKEN, HIGHEST_TOKEN) if c.sampled else None for c in step.chunks]
        computed = time.perf_counter()
        produced = self.scheduler.complete(step, results, self._clock)
        completed = time.perf_counter()
        done = {s.request.id: s.request for s, _ in produced if s.output_length >= s.request.max_tokens}
        done |= {request.id: request for request in step.exhausted}
        finish = add = 0.0
        for request in done.values():
            seconds = self._finish(request), self._replace(request)
            finish, add = finish + seconds[0], add + seconds[1]
        return {
            "schedule": scheduled - begin,
            "complete": completed - computed,
            "finish": finish,
            "add": add,
            **self._counts(step, len(done)),
        }

    def _counts(self, step: Step, ended: int) -> dict[str, float]:
        return {
            "decodes": sum(1 for chunk in step.chunks if chunk.count == 1 and chunk.start),
            "prompt_tokens": sum(chunk.count for chunk in step.chunks if chunk.count > 1),
            "admitted": len(step.admitted),
            "preempted": len(step.preempted),
            "ended": ended,
            "running": len(self.scheduler.running),
            "waiting": len(self.scheduler.waiting),
        }

    def _finish(self, request: Request) -> float:
        tokens = list(request.sequences[0].tokens)
        begin = time.perf_counter()
        self.scheduler.finish(request)
        seconds = time.perf_counter() - begin
        self._tenants[request.account].remember(tokens)
        return seconds

    def _replace(self, request: Request) -> float:
        tenant = self._tenants[request.account]
        return self._add(tenant, *tenant.draw())

    def _add(self, tenant: Tenant, prompt: list[int], output: int) -> float:
        """Seconds to queue it; a prompt that the tenant's limit forbids is cut to what always fits."""
        request = self._request(tenant, prompt, output)
        begin = time.perf_counter()
        try:
            self.scheduler.add(request)
        except RequestRefused:
            return self._add(tenant, prompt[: len(prompt) // 2], output)
        return time.perf_counter() - begin

    def _request(self, tenant: Tenant, prompt: list[int], output: int) -> Request:
        number = next(self._ids)
        return Request.create(
            id=str(number),
            account=tenant.id,
            scope=f"tenant:{tenant.id}",
            lineage="",
            request_class=tenant.request_class,
            arrival=self._clock + number * 1e-9,  # no two at once
            max_tokens=output,
            prompt=prompt,
            sampler=Sampler(),
        )
