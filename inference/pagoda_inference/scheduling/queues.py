"""Waiting requests: one queue per account, each ordered by class (interactive, api, batch) and then by arrival.

A preempted request keeps its arrival and so comes back to where it was.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from pagoda_inference.scheduling.sequence import Request


class WaitingQueues:
    """Account id -> its waiting requests in order. Accounts without any are absent."""

    def __init__(self) -> None:
        self._queues: dict[str, list[Request]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Request]:
        return (request for queue in self._queues.values() for request in queue)

    def accounts(self) -> list[str]:
        return list(self._queues)

    def of(self, account: str) -> list[Request]:
        """The account's queue, in order; not to be changed by the caller."""
        return self._queues.get(account, [])

    def add(self, request: Request) -> None:
        insort(self._queues.setdefault(request.account, []), request, key=lambda waiting: waiting.order)
        self._length += 1

    def remove(self, request: Request) -> None:
        queue = self._queues[request.account]
        queue.remove(request)
        self._length -= 1
        if not queue:
            del self._queues[request.account]
