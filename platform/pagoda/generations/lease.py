"""Who records a generation: a lease in its row, taken over when it runs out.

Every write of a recorder names the owner it believes to be; a row that somebody else took over is not touched.
"""

from __future__ import annotations

import os
import socket
import uuid
from datetime import datetime, timedelta

from django.utils import timezone

from pagoda.generations.models import Generation

LEASE_S = 10.0
"""How long a recorder may be silent. Renewed with every snapshot."""

SWEEP_LIMIT = 100
"""Generations one sweep takes over at most."""

alive: set[str] = set()
"""Owners of this process that hear their generations' events themselves: where the process was held up for longer than
a lease, its own recorder does not take them over."""


def new_owner() -> str:
    """A name for one recorder, told apart from every other one that ever was."""
    return f"{socket.gethostname()[:20]}:{os.getpid()}:{uuid.uuid4().hex[:12]}"


def expiry() -> datetime:
    """When a lease taken or renewed now runs out."""
    return timezone.now() + timedelta(seconds=LEASE_S)


def claim_abandoned(owner: str) -> list[Generation]:
    """Take over generations in progress whose lease ran out. Two that try at once never get the same one."""
    abandoned = Generation.across_tenants.filter(finished__isnull=True, lease_expires__lte=timezone.now())
    if alive:
        abandoned = abandoned.exclude(lease_owner__in=alive)
    claimed = [
        generation_id
        for generation_id in abandoned.order_by("lease_expires").values_list("pk", flat=True)[:SWEEP_LIMIT]
        if Generation.across_tenants.filter(
            pk=generation_id, finished__isnull=True, lease_expires__lte=timezone.now()
        ).update(lease_owner=owner, lease_expires=expiry())
    ]
    # Read after the claim: from here on nobody else writes to these rows.
    return list(Generation.across_tenants.filter(pk__in=claimed)) if claimed else []
