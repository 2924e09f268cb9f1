"""A number that rises with every change of a list that the engines keep: they ignore an older list."""

from __future__ import annotations

import time

from django.db import models
from django.db.models import F


class VersionRow(models.Model):
    """A table of one row.

    The number starts at the time of day in seconds, so that a new database is ahead of what engines learnt from an
    older one.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    version = models.PositiveBigIntegerField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.version)

    @classmethod
    def current(cls) -> int:
        """0 before the first change."""
        return cls._default_manager.values_list("version", flat=True).first() or 0

    @classmethod
    def raise_above(cls, seen: int) -> int:
        """Make the version greater than it is and than ``seen``. Part of the caller's transaction."""
        rows = cls._default_manager
        rows.bulk_create([cls(id=1, version=int(time.time()))], ignore_conflicts=True)
        rows.filter(version__lt=seen).update(version=seen)
        rows.update(version=F("version") + 1)
        return rows.values_list("version", flat=True).get()
