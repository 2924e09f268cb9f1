"""Waiting requests: one queue per account, each ordered by class (interactive, api, batch) and then by arrival.

A preempted request keeps its arrival and so comes back to where it was.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from operator import attrgetter

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.scheduling.sequence import Request

BY_ORDER = attrgetter("order")


class RequestsByAccount:
    """Account -> its requests in order. Accounts without any are absent."""

    def __init__(self) -> None:
        self._queues: dict[str, list[Request]] = {}
        self._versions: dict[str, int] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Request]:
        return (request for queue in self._queues.values() for request in queue)

    def accounts(self) -> list[str]:
        return list(self._queues)

    def ledgers(self) -> list[Ledger]:
        return [queue[0].ledger for queue in self._queues.values()]

    def of(self, account: str) -> list[Request]:
        """The account's requests, in order; not to be changed by the caller."""
        return self._queues.get(account) or []

    def version_of(self, account: str) -> int:
        """Another number after each change of the account's requests."""
        return self._versions.get(account, 0)

    def changed(self, request: Request) -> None:
        """Something about a request of its account is otherwise."""
        self._versions[request.account] = self._versions.get(request.account, 0) + 1

    def add(self, request: Request) -> None:
        queue = self._queues.get(request.account)
        if queue is None:
            self._queues[request.account] = [request]
        else:
            insort(queue, request, key=BY_ORDER)
        self._length += 1
        self.changed(request)

    def remove(self, request: Request) -> None:
        queue = self._queues[request.account]
        queue.remove(request)
        self._length -= 1
        self.changed(request)
        if not queue:
            del self._queues[request.account]
