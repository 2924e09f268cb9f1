"""The engine's side of the host tier: cached blocks and swapped requests in main memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from pagoda_inference.kv.tiers.copier import Copier
from pagoda_inference.kv.tiers.counters import TierCounters
from pagoda_inference.kv.tiers.host import HostCopy, Stowed
from pagoda_inference.kv.tiers.space import Copy, Space

if TYPE_CHECKING:
    from pagoda_inference.kv.entry import Entry
    from pagoda_inference.model.backend import Backend

Failed = Callable[[BaseException], None]


class Leave(Protocol):
    """What becomes of a copy that was evicted, or (``failed``) never arrived."""

    def __call__(self, copy: HostCopy, *, failed: bool = False) -> None: ...


class HostTier:
    """Copies and swapped requests in one ``space``. ``leave`` is called for each copy that has to go."""

    def __init__(self, backend: Backend, space: Space, copier: Copier, leave: Leave) -> None:
        self.space = space
        self.counters = TierCounters()
        self.storing = 0
        """Blocks on their way here."""
        self._backend = backend
        self._copier = copier
        self._leave = leave
        self._stowed: dict[str, dict[Stowed, None]] = {}

    def by_age(self) -> list[HostCopy]:
        """Copies that nothing pins, the least recently used first."""
        return [copy for copy in self.space.copies_by_age() if isinstance(copy, HostCopy)]

    def store(self, entries: Sequence[Entry], blocks: Sequence[int], done: Callable[[], None], failed: Failed) -> None:
        """See Tiers.store."""
        copies: list[HostCopy] = []
        taken: list[int] = []
        for entry, block in zip(entries, blocks, strict=True):
            copy = self._new_copy(entry)
            if copy is not None:
                copies.append(copy)
                taken.append(block)

        def work() -> None:
            if taken:
                for copy, payload in zip(copies, self._backend.read_blocks(taken), strict=True):
                    copy.payload = payload

        def finished(error: BaseException | None) -> None:
            self.storing -= len(blocks)
            for copy in copies:
                self.space.unpin(copy)
                if error is not None and copy.live:
                    self.space.remove(copy)
                    self._leave(copy, failed=True)
            if error is not None:
                failed(error)
            else:
                self.counters.stored += len(copies)
            done()
            self._shrink()

        self.storing += len(blocks)
        self._copier.submit(work, finished)

    def stow(self, account: str, blocks: Sequence[int], done: Callable[[Stowed | None], None], failed: Failed) -> bool:
        """See Tiers.stow."""
        stowed = Stowed(account, len(blocks), len(blocks) * self.space.copy_bytes)
        if not self._make_room(account, stowed.size):
            return False
        self.space.charge(account, stowed.size)
        self._stowed.setdefault(account, {})[stowed] = None
        payloads: list[bytearray] = []

        def finished(error: BaseException | None) -> None:
            if error is not None:
                failed(error)
                self.discard(stowed)
            elif stowed.live:
                stowed.payloads = payloads
            done(stowed if stowed.live else None)

        self._copier.submit(lambda: payloads.extend(self._backend.read_blocks(list(blocks))), finished)
        return True

    def unstow(
        self, stowed: Stowed, places: Sequence[tuple[int, int]], done: Callable[[bool], None], failed: Failed
    ) -> None:
        """See Tiers.unstow."""
        payloads = [stowed.payloads[index] for index, _ in places] if stowed.live else []
        blocks = [block for _, block in places]

        def finished(error: BaseException | None) -> None:
            if error is not None:
                failed(error)
            done(error is None and stowed.live)

        def work() -> None:
            if payloads:
                self._backend.write_blocks(blocks, payloads)

        self._copier.submit(work, finished)

    def discard(self, stowed: Stowed) -> None:
        """See Tiers.discard."""
        if stowed.live:
            stowed.live = False
            stowed.payloads = []
            del self._stowed[stowed.account][stowed]
            self.space.refund(stowed.account, stowed.size)

    def discard_all(self, account: str) -> None:
        """The account was deleted."""
        for stowed in list(self._stowed.get(account, ())):
            self.discard(stowed)
        self._stowed.pop(account, None)

    def forget(self, copy: HostCopy) -> None:
        """The content is not wanted any more, also where it is on its way."""
        self.space.remove(copy)
        copy.payload = None

    def _new_copy(self, entry: Entry) -> HostCopy | None:
        if isinstance(entry.host, Copy) and entry.host.live:
            return None
        if not self._make_room(entry.root.account, self.space.copy_bytes):
            self.counters.dropped += 1
            return None
        copy = HostCopy(entry)
        copy.pins = 1
        self.space.add(copy)
        entry.host = copy
        return copy

    def _make_room(self, account: str, size: int) -> bool:
        evicted = self.space.make_room(account, size)
        for copy in evicted or ():
            self._leave(copy)  # type: ignore[arg-type]
        return evicted is not None

    def _shrink(self) -> None:
        """A quota may have been lowered while copies were pinned."""
        for copy in self.space.enforce():
            self._leave(copy)  # type: ignore[arg-type]
