"""Which engine serves a conversation: always the same one, so that its prefix cache is warm.

Rendezvous hashing (Thaler and Ravishankar 1998): every engine gets a score per lineage, the highest wins. When an
engine leaves, only its own conversations move; when it comes back, they return.
"""

from __future__ import annotations

import hashlib

from django.conf import settings

from pagoda.engines import reports


def ranked(lineage: str) -> list[str]:
    """All engines, the best for this lineage first. The same in every process."""

    def score(address: str) -> bytes:
        return hashlib.sha256(f"{len(address)}:{address}{lineage}".encode()).digest()

    return sorted(settings.PAGODA_ENGINES, key=score, reverse=True)


def engine_for(lineage: str) -> str:
    """The best engine that this process can reach now; the best of all where it reaches none (or keeps no watch)."""
    addresses = ranked(lineage)
    return next((address for address in addresses if reports.is_reachable(address)), addresses[0])
