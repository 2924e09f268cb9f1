"""Virtual Token Counters: weighted fairness among tenants (Sheng et al., OSDI'24).

Every account has a counter of the service it got: an input token costs 1, a cached one 0, an output token 2, divided
by the account's weight. Whoever has the least is served next.

An account is *backlogged* while it has a request that could be served now: an unfinished prompt, or a waiting request
that its account and the pool could admit. One that was not and becomes so is lifted to the level of the least served
backlogged account, so that neither idleness nor waiting at its own limit earns credit.

The paper lets running requests decode whatever the counters say; with a token budget per step this alone can outrun
somebody else's prompts without end. So an account that is ``slack`` ahead of the least served backlogged one skips
decode steps until it is not. The service of two accounts that are both backlogged then differs by at most
``2 * max(L_input, 2 M) / min weight`` (L_input: longest prompt, M: token budget).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from pagoda_inference.kv.accounts import Ledger

INPUT_PRICE = 1.0
OUTPUT_PRICE = 2.0


class VirtualTokenCounters:
    """Keeps ``Ledger.service``: priced tokens per weight.

    token_budget: of a step, what M is in the bound.
    """

    def __init__(self, token_budget: int) -> None:
        self.backlogged: dict[str, Ledger] = {}
        self._slack = OUTPUT_PRICE * token_budget
        self._level = 0.0
        """Where an account comes in when nobody is backlogged."""

    def saw_prompt(self, tokens: int) -> None:
        """A prompt of this length came: the bound covers it."""
        self._slack = max(self._slack, INPUT_PRICE * tokens)

    def lift(self, ledger: Ledger, busy: Callable[[], Iterable[Ledger]]) -> None:
        """The account is backlogged from now on. ``busy``: all accounts with work.

        Where nobody else is backlogged nothing is contended: it comes in beside the best served.
        """
        if ledger.id in self.backlogged:
            return
        if self.backlogged:
            self._level = min(other.service for other in self.backlogged.values())
        else:
            self._level = max([self._level, *(other.service for other in busy() if other is not ledger)])
        self.backlogged[ledger.id] = ledger
        ledger.service = max(ledger.service, self._level)

    def left(self, ledger: Ledger) -> None:
        """The account is not backlogged any more."""
        if self.backlogged.pop(ledger.id, None) is not None:
            self._level = max(self._level, ledger.service)

    def keep(self, ids: Container[str]) -> None:
        """Only these accounts have anything to be served."""
        for id, ledger in list(self.backlogged.items()):
            if id not in ids:
                self.left(ledger)

    def too_far_ahead(self, decoding: Iterable[tuple[Ledger, int]]) -> set[Ledger]:
        """Of ``decoding``, with the tokens that each would decode, those that must wait for a backlogged one."""
        least = min((ledger.service for ledger in self.backlogged.values()), default=None)
        if least is None:
            return set()
        return {
            ledger
            for ledger, tokens in decoding
            if ledger.service + OUTPUT_PRICE * tokens / ledger.weight > least + self._slack / ledger.weight
        }

    @staticmethod
    def charge_input(ledger: Ledger, tokens: int) -> None:
        """Tokens of a prompt computed; negative to take back what was not computed after all."""
        ledger.service += INPUT_PRICE * tokens / ledger.weight

    @staticmethod
    def charge_output(ledger: Ledger, tokens: int) -> None:
        """Tokens of answers; negative to take back what nobody is told."""
        ledger.service += OUTPUT_PRICE * tokens / ledger.weight
