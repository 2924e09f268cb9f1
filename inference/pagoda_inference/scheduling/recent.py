"""Who asked for something of late, and so may ask again at any moment."""

from __future__ import annotations

from collections.abc import Set

RECENT_S = 10.0
"""How long an account counts after its last request came."""


class RecentAccounts:
    """Accounts by when their last request came, the latest last. Forgets those of longer than RECENT_S ago."""

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}

    def saw(self, account: str, now: float) -> None:
        """A request of the account came. ``now``: seconds, on the clock of ``shared``."""
        self._asked.pop(account, None)
        self._asked[account] = now
        while now - self._asked[oldest := next(iter(self._asked))] > RECENT_S:
            del self._asked[oldest]

    def shared(self, busy: Set[str], now: float) -> bool:
        """Whether the ``busy`` accounts and the recent ones are more than one."""
        accounts = set(busy)
        for account, asked in reversed(self._asked.items()):
            if len(accounts) > 1 or now - asked > RECENT_S:
                break
            accounts.add(account)
        return len(accounts) > 1
