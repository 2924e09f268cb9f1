"""A buddy allocator over token slots: the memory manager that the paper gives its Orca baselines (section 6.1)."""

from __future__ import annotations


class BuddyAllocator:
    """Chunks of powers of two out of ``slots``, which are the arenas of its binary digits: 15,728 slots are chunks of
    8192, 4096, 2048, 1024, 256, 64, 32 and 16. The smallest chunk that is large enough is halved until it fits; a
    chunk that is given back joins its free buddy.
    """

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError("an allocator needs at least 1 slot")
        self.slots = slots
        self.allocated = 0
        """Slots of the chunks that are out."""
        self._free: dict[int, set[int]] = {}
        self._arenas: dict[int, tuple[int, int]] = {}
        """Begin of an arena -> (begin, size); chunks never join across arenas."""
        begin = 0
        for digit in reversed(range(slots.bit_length())):
            if slots >> digit & 1:
                self._free.setdefault(1 << digit, set()).add(begin)
                self._arenas[begin] = (begin, 1 << digit)
                begin += 1 << digit

    @staticmethod
    def chunk_size(slots: int) -> int:
        """Size of the chunk that holds so many slots: the next power of two."""
        return 1 << (slots - 1).bit_length()

    def allocate(self, slots: int) -> int | None:
        """The begin of a chunk for ``slots`` slots; None where no chunk is large enough."""
        wanted = self.chunk_size(slots)
        size = min((size for size, chunks in self._free.items() if size >= wanted and chunks), default=None)
        if size is None:
            return None
        begin = min(self._free[size])
        self._free[size].remove(begin)
        while size > wanted:
            size //= 2
            self._free.setdefault(size, set()).add(begin + size)
        self.allocated += wanted
        return begin

    def free(self, begin: int, slots: int) -> None:
        """Give the chunk back that ``allocate(slots)`` gave at ``begin``."""
        size = self.chunk_size(slots)
        self.allocated -= size
        arena, arena_size = self._arena(begin)
        while size < arena_size:
            buddy = arena + ((begin - arena) ^ size)
            if buddy not in self._free.get(size, ()):
                break
            self._free[size].remove(buddy)
            begin = min(begin, buddy)
            size *= 2
        self._free.setdefault(size, set()).add(begin)

    def _arena(self, begin: int) -> tuple[int, int]:
        return max(arena for arena in self._arenas.values() if arena[0] <= begin)
