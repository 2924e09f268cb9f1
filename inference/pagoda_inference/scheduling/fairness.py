"""Virtual Token Counters: weighted fairness among tenants (Sheng et al., OSDI'24).

Every account has a counter of the service it got: an input token costs 1, a cached one 0, an output token 2, divided
by the account's weight. Whoever has the least is served next. An account that had nothing to do comes back at the
level of the least served busy one (the lift), so that idleness earns no credit.
"""

from __future__ import annotations

from collections.abc import Iterable

INPUT_PRICE = 1.0
OUTPUT_PRICE = 2.0


class VirtualTokenCounters:
    """Service per account, in priced tokens per weight."""

    def __init__(self) -> None:
        self._service: dict[str, float] = {}
        self._last_left = 0.0
        """Counter of the account that was last to run out of work: the level to come back at when nobody is busy."""

    def of(self, account: str) -> float:
        return self._service.get(account, 0.0)

    def lift(self, account: str, busy: Iterable[str]) -> None:
        """The account has work again; ``busy`` are the others that have."""
        levels = [self.of(other) for other in busy if other != account]
        level = min(levels) if levels else self._last_left
        self._service[account] = max(self.of(account), level)

    def left(self, account: str) -> None:
        """The account has run out of work."""
        self._last_left = self.of(account)

    def charge_input(self, account: str, tokens: int, weight: float) -> None:
        """Tokens of a prompt computed; negative to take back what was not computed after all."""
        self._service[account] = self.of(account) + INPUT_PRICE * tokens / weight

    def charge_output(self, account: str, tokens: int, weight: float) -> None:
        self._service[account] = self.of(account) + OUTPUT_PRICE * tokens / weight

    def forget(self, account: str) -> None:
        self._service.pop(account, None)
