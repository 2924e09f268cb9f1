"""Watches a world from outside: who was backlogged during which steps, and how far service drifted apart meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict

from pagoda_inference.scheduling.sequence import Request
from pagoda_inference.scheduling.step import Step
from tests.kv.world import World


class FairnessMonitor:
    """Service: an input token computed costs 1, a cached one 0, an output token 2, per weight.

    For each pair of accounts the difference of their services is followed while both are backlogged; ``drift`` is how
    far it has moved within one such interval at most, and ``bound`` what it may.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.service: dict[str, float] = defaultdict(float)
        self.backlogged_steps: Counter[tuple[str, str]] = Counter()
        self.drift: dict[tuple[str, str], float] = {}
        self.longest_prompt = 1
        self._ranges: dict[tuple[str, str], tuple[float, float]] = {}
        self._outputs: dict[Request, int] = {}

    def step(self) -> Step:
        """One step of the world, watched."""
        world = self.world
        before = self._backlogged()
        known = [*world.scheduler.running, *world.scheduler.waiting]
        step = world.step()
        for chunk in step.chunks:
            request, sequence = chunk.sequence.request, chunk.sequence
            new = max(0, min(chunk.start + chunk.count, sequence.prompt_length) - chunk.start)
            assert 0 <= chunk.priced <= new
            assert chunk.priced == new or request.preemptions, "new input is always charged"
            self._serve(request, chunk.priced)
        for request in known:
            output = request.sequences[0].output_length
            self._serve(request, 2 * (output - self._outputs.get(request, 0)))
            self._outputs[request] = output
        self._check(before & self._backlogged())
        return step

    def bound(self, one: str, other: str) -> float:
        weights = [self._weight(one), self._weight(other)]
        return 2 * max(self.longest_prompt, 2 * self.world.scheduler.token_budget) / min(weights)

    def _check(self, backlogged: set[str]) -> None:
        """These were backlogged when the step began, and are still."""
        for pair in list(self._ranges):
            if not backlogged.issuperset(pair):
                del self._ranges[pair]
        for one in backlogged:
            for other in backlogged:
                if one < other:
                    self._follow(one, other)

    def _follow(self, one: str, other: str) -> None:
        pair, now = (one, other), self.service[one] - self.service[other]
        low, high = self._ranges.get(pair, (now, now))
        low, high = self._ranges[pair] = min(low, now), max(high, now)
        self.backlogged_steps[pair] += 1
        self.drift[pair] = max(self.drift.get(pair, 0.0), high - low)
        bound = self.bound(one, other)
        assert high - low <= bound + 1e-6, f"{pair}: service drifted by {high - low:.1f}, the bound is {bound:.1f}"

    def _serve(self, request: Request, tokens: int) -> None:
        self.service[request.account] += tokens / self._weight(request.account)

    def _weight(self, account: str) -> float:
        ledger = self.world.pool.accounts.find(account)
        assert ledger is not None
        return ledger.weight

    def _backlogged(self) -> set[str]:
        """An uncomputed prompt runs, or the head of the queue could have its blocks and a slot."""
        scheduler, accounts = self.world.scheduler, set()
        for request in scheduler.running:
            self.longest_prompt = max(self.longest_prompt, request.prompt_length)
            if not request.decoding and not request.loading:
                accounts.add(request.account)
        slot = len(scheduler.running) < self.world.max_running
        for account in scheduler.waiting.accounts():
            head = scheduler.waiting.of(account)[0]
            self.longest_prompt = max(self.longest_prompt, head.prompt_length)
            if slot and self._fits(head):
                accounts.add(account)
        return accounts

    def _fits(self, request: Request) -> bool:
        """Its whole known context plus a block, as if nothing of it were cached (so that nothing is disturbed)."""
        pool = self.world.pool
        needed = pool.blocks_for(len(request.sequences[0].tokens)) + 1
        return needed <= pool.accounts.room(request.ledger)
