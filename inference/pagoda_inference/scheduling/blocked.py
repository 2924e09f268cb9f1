"""What is known of accounts of which nobody could come: they are not looked at again until something changes."""

from __future__ import annotations

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.scheduling.sequence import Request
from pagoda_inference.scheduling.workload import Workload


class Look:
    """One look at an account's queue. least: blocks that somebody of it would have to have room for. keys: what
    would make some of them need less, if it could be found."""

    __slots__ = ("keys", "least", "state")

    def __init__(self, most: int) -> None:
        self.least = most
        self.keys: list[bytes] = []
        self.state: tuple[object, ...] = ()

    def saw(self, request: Request, lacking: int) -> None:
        """This request could not come: it would need room for ``lacking`` blocks, or more."""
        self.least = min(self.least, lacking)
        key = request.next_key
        if key is not None:
            self.keys.append(key)


class Blocked:
    """Remembers the last look at each account's queue from which nobody came."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._looks: dict[str, Look] = {}

    def remember(self, ledger: Ledger, look: Look) -> None:
        """Nobody of the account could come."""
        awaited = self._workload.pool.index.awaited
        before = self._looks.get(ledger.id)
        if before is not None:
            for key in before.keys:
                awaited.pop(key, None)
        for key in look.keys:
            awaited[key] = ledger
        look.state = self._state_of(ledger)
        self._looks[ledger.id] = look

    def still(self, ledger: Ledger, room: int) -> bool:
        """Whether nobody of the account can come into ``room`` blocks now either, but by preemption."""
        look = self._looks.get(ledger.id)
        if look is None or look.state != self._state_of(ledger):
            return False
        return room < look.least + self._workload.headroom(ledger, look.least)

    def _state_of(self, ledger: Ledger) -> tuple[object, ...]:
        """Changes with the account's queue and quota, and with what its requests could find. Blocks that are not active
        any more only make them need more.
        """
        version = self._workload.waiting.version_of(ledger.id)
        pool = self._workload.pool
        reserved = pool.accounts.reserved
        return version, ledger.longer, pool.index.published, ledger.limit, reserved, not ledger.active
