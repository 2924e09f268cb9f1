"""All generation logs of an engine: found by account and id, bounded in bytes per account, expired after a while."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from pagoda_inference.generation_log import GenerationLog, Key, Ledger
from pagoda_inference.protocol import Error, Event


class AccountLogsFull(Exception):
    """The account's running generations alone hold more than their logs may."""


class AccountLogs(Ledger):
    """One account's logs: how many still run, and the ended ones with the time of their end, oldest first."""

    __slots__ = ("ended", "running")

    def __init__(self) -> None:
        super().__init__()
        self.running = 0
        self.ended: OrderedDict[GenerationLog, float] = OrderedDict()


class GenerationStore:
    """Used from the event loop alone.

    max_bytes: of one account's logs together. Over it, the account's oldest ended generations are dropped, read or
    not. keep_s: how long an ended generation waits to be acknowledged.
    """

    def __init__(
        self, *, max_bytes: int = 16 << 20, keep_s: float = 600.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_bytes = max_bytes
        self.keep_s = keep_s
        self.dropped = 0
        """Generations dropped for bytes, unacknowledged, since the start."""
        self.expired = 0
        """Generations nobody acknowledged in time, since the start."""
        self._clock = clock
        self._logs: dict[Key, GenerationLog] = {}
        self._accounts: dict[str, AccountLogs] = {}

    @property
    def bytes(self) -> int:
        """What all logs hold."""
        return sum(account.bytes for account in list(self._accounts.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def find(self, key: Key) -> GenerationLog | None:
        """The log, unless it is unknown or forgotten."""
        return self._logs.get(key)

    def create(self, key: Key, *, cancel_unheard: bool = False) -> GenerationLog:
        """A log for a new generation. Raises AccountLogsFull."""
        account = self._accounts.setdefault(key[0], AccountLogs())
        if account.bytes > self.max_bytes:
            raise AccountLogsFull
        log = self._logs[key] = GenerationLog(key, account, cancel_unheard=cancel_unheard)
        account.running += 1
        return log

    def deliver(self, outcomes: Iterable[tuple[GenerationLog, Event | Error]]) -> None:
        """Take in what happened in a step: events, and refusals of generations that have none."""
        for log, outcome in outcomes:
            if isinstance(outcome, Error):
                self.refuse(log, outcome)
            else:
                self.append(log, outcome)

    def append(self, log: GenerationLog, event: Event) -> None:
        """Add a generation's next event, then keep its account within its bytes."""
        log.append(event)
        account = self._accounts[log.key[0]]
        if log.ended:
            account.running -= 1
            account.ended[log] = self._clock()
        while account.bytes > self.max_bytes and account.ended:
            oldest = next(iter(account.ended))
            if oldest.forgotten < oldest.last_seq:
                self.dropped += 1
            oldest.drop()
            self._remove(oldest)

    def refuse(self, log: GenerationLog, error: Error) -> None:
        """The generation was never begun: tell its readers and forget it."""
        log.refuse(error)
        self._accounts[log.key[0]].running -= 1
        self._remove(log)

    def acknowledge(self, log: GenerationLog, seq: int) -> None:
        """Forget events up to ``seq``; after the last one the generation is unknown."""
        if log.acknowledge(seq):
            del self._logs[log.key]
            if not log.cursors:
                self._remove(log)

    def expire(self) -> None:
        """Forget what ended more than ``keep_s`` ago. Cheap: call it every few seconds."""
        before = self._clock() - self.keep_s
        for account in list(self._accounts.values()):
            while account.ended:
                log, ended_at = next(iter(account.ended.items()))
                if ended_at > before:
                    break
                if log.forgotten < log.last_seq:
                    self.expired += 1
                log.drop()
                self._remove(log)

    def _remove(self, log: GenerationLog) -> None:
        if self._logs.get(log.key) is log:
            del self._logs[log.key]
        name = log.key[0]
        account = self._accounts[name]
        account.ended.pop(log, None)
        if not account.running and not account.ended:
            del self._accounts[name]
