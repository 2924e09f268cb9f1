"""What a recorder writes to the database: snapshots on the way, the settlement at the end.

Synchronous; recorders call it through ``database_sync_to_async`` and never while they wait for an engine.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from pagoda.generations import key_uses, lease
from pagoda.generations.models import Generation
from pagoda.generations.signals import generation_settled
from pagoda.tenants.scoping import tenant_scope
from pagoda.usage import admission, ledger
from pagoda_inference.protocol import Usage


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How far one generation has come. text and token_ids are everything up to seq. model: '' while not known."""

    generation_id: uuid.UUID
    seq: int
    text: str
    instance: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    token_ids: tuple[int, ...] = ()
    model: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a generation ended. usage is the engine's own where it gave one."""

    state: str
    finish_reason: str = ""
    usage: Usage | None = None
    error: dict[str, Any] | None = None


_SETTLED_FIELDS = (
    *("state", "finish_reason", "error", "seq", "text", "token_ids", "engine_instance", "model", "request", "finished"),
    *("prompt_tokens", "cached_tokens", "output_tokens", "queued_s", "prefill_s", "decode_s", "blocks_freed"),
    *("lease_owner", "lease_expires"),
)


def write_snapshots(snapshots: Sequence[Snapshot], owner: str, *, release: bool = False) -> tuple[set, set]:
    """Store snapshots and renew their leases (or give them up), all in one transaction.

    Returns the ids that this owner no longer holds, and those to stop: somebody asked for it, or the key or tenant they
    are for may no longer have them.
    """
    ids = [snapshot.generation_id for snapshot in snapshots]
    held = {"lease_owner": "", "lease_expires": timezone.now()} if release else {"lease_expires": lease.expiry()}
    lost = set()
    with transaction.atomic():
        for snapshot in snapshots:
            fields: dict[str, Any] = dict(held)
            if snapshot.seq:
                fields |= {
                    "state": Generation.State.STREAMING,
                    "seq": snapshot.seq,
                    "text": snapshot.text,
                    "token_ids": list(snapshot.token_ids),
                    "engine_instance": snapshot.instance,
                    "prompt_tokens": snapshot.prompt_tokens,
                    "cached_tokens": snapshot.cached_tokens,
                    "output_tokens": snapshot.output_tokens,
                }
            rows = Generation.across_tenants.filter(
                pk=snapshot.generation_id, lease_owner=owner, finished__isnull=True
            ).update(**fields)
            if not rows:
                lost.add(snapshot.generation_id)
        return lost, key_uses.to_stop(ids) - lost


def settle(snapshot: Snapshot, outcome: Outcome, owner: str) -> bool:
    """Make the result final, together with its usage and whatever listens to ``generation_settled``.

    False when another recorder holds the lease: nothing was written.
    """
    with transaction.atomic():
        generation = (
            Generation.across_tenants.select_for_update()
            .filter(pk=snapshot.generation_id, lease_owner=owner, finished__isnull=True)
            .first()
        )
        if generation is None:
            return False
        _apply(generation, snapshot, outcome)
        with tenant_scope(generation.tenant_id):
            generation.save(update_fields=_SETTLED_FIELDS)
            if outcome.usage is None and not (generation.prompt_tokens or generation.output_tokens):
                admission.release(generation.pk)
            else:
                ledger.enter(
                    generation_id=generation.pk,
                    tenant_id=generation.tenant_id,
                    user_id=generation.user_id,
                    api_key_id=generation.api_key_id,
                    model=generation.model,
                    purpose=generation.purpose,
                    prompt_tokens=generation.prompt_tokens,
                    cached_tokens=generation.cached_tokens,
                    output_tokens=generation.output_tokens,
                )
            generation_settled.send(sender=Generation, generation=generation)
        return True


def hand_over(snapshot: Snapshot, owner: str) -> None:
    """Give a lease up: whichever recorder sweeps next goes on after ``snapshot.seq`` and settles.

    A recorder that finds the engine without the generation settles what the snapshot counted.
    """
    Generation.across_tenants.filter(pk=snapshot.generation_id, lease_owner=owner, finished__isnull=True).update(
        seq=snapshot.seq,
        engine_instance=snapshot.instance,
        prompt_tokens=snapshot.prompt_tokens,
        cached_tokens=snapshot.cached_tokens,
        output_tokens=snapshot.output_tokens,
        lease_owner="",
        lease_expires=timezone.now(),
    )


def _apply(generation: Generation, snapshot: Snapshot, outcome: Outcome) -> None:
    generation.state = outcome.state
    generation.finish_reason = outcome.finish_reason
    generation.error = outcome.error
    generation.seq = snapshot.seq
    generation.text = snapshot.text
    generation.token_ids = list(snapshot.token_ids)
    generation.engine_instance = snapshot.instance
    # Whoever asked without an engine at hand (a title) could not name it.
    generation.model = generation.model or snapshot.model
    generation.prompt_tokens = snapshot.prompt_tokens
    generation.cached_tokens = snapshot.cached_tokens
    generation.output_tokens = snapshot.output_tokens
    if outcome.usage is not None:
        generation.prompt_tokens = outcome.usage.prompt_tokens
        generation.cached_tokens = outcome.usage.cached_tokens
        generation.output_tokens = outcome.usage.output_tokens
        generation.queued_s = outcome.usage.queued_s
        generation.prefill_s = outcome.usage.prefill_s
        generation.decode_s = outcome.usage.decode_s
        generation.blocks_freed = outcome.usage.blocks_freed
    # The texts are the asker's: whoever needs them has stored them.
    generation.request = {key: value for key, value in generation.request.items() if key != "messages"}
    generation.lease_owner = ""
    generation.lease_expires = None
    generation.finished = timezone.now()
