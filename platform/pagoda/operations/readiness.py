"""Whether this web process can serve: its database answers and an engine is reachable."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import DatabaseError, connection

from pagoda.engines import reports


@dataclass(frozen=True)
class Check:
    """One thing that must hold. ``detail`` may be shown to anybody: no addresses, no names."""

    name: str
    ok: bool
    detail: str


def readiness() -> list[Check]:
    """Blocking; takes one short query."""
    return [_database(), _engines()]


def _database() -> Check:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return Check("database", False, f"The database does not answer ({type(error).__name__}).")
    return Check("database", True, "answers")


def _engines() -> Check:
    """The process's own watch on each engine knows: nothing is asked here."""
    addresses = settings.PAGODA_ENGINES
    reachable = sum(map(reports.is_reachable, addresses))
    return Check("engines", reachable > 0, f"{reachable} of {len(addresses)} reachable")
