"""What a batch reads and writes: files of any size in little memory, each at its place when it is whole."""

from __future__ import annotations

import errno
import json
import tracemalloc
import uuid
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from lines import line

from pagoda.batches import input_file, storage
from pagoda.batches.models import Batch, BatchLine
from pagoda.tenants.scoping import CrossTenantAccess, tenant_scope

ENDPOINT = "/v1/chat/completions"
MIB = 1 << 20


def written(folder: Path, lines: Iterable[str]) -> Path:
    path = folder / "input.jsonl"
    with path.open("w") as file:
        file.writelines(f"{text}\n" for text in lines)
    return path


def test_fifty_thousand_lines_are_taken_and_one_more_is_not(tmp_path: Path) -> None:
    texts = [json.dumps(line(str(number))) for number in range(50_001)]
    assert input_file.check(written(tmp_path, texts[:-1]), ENDPOINT) == (50_000, [])
    _, errors = input_file.check(written(tmp_path, texts), ENDPOINT)
    assert [(error.code, error.line) for error in errors] == [("too_many_tasks", 50_001)]


def test_a_large_file_is_never_held_in_memory(tmp_path: Path) -> None:
    path = written(tmp_path, (json.dumps(line(str(number), "x" * MIB)) for number in range(64)))
    tracemalloc.start()
    try:
        assert input_file.check(path, ENDPOINT) == (64, [])
        deque(input_file.read(path, ENDPOINT), maxlen=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A line of a MiB, as bytes, as text and parsed; not the 64 of them.
    assert peak < 8 * MIB


def test_faults_of_a_hundred_lines_are_told(tmp_path: Path) -> None:
    path = written(tmp_path, ["{}"] * 150)
    total, errors = input_file.check(path, ENDPOINT)
    assert [error.line for error in errors] == list(range(1, 101))
    assert total == 100


def test_a_line_that_is_too_long_is_told_and_the_next_ones_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_file, "MAX_BODY_BYTES", MIB)
    path = written(tmp_path, [json.dumps(line("long", "x" * 3 * MIB)), json.dumps(line("short")), "nonsense"])
    total, errors = input_file.check(path, ENDPOINT)
    assert (total, [(error.code, error.line) for error in errors]) == (
        3,
        [("line_too_long", 1), ("invalid_json_line", 3)],
    )
    assert "1 MiB" in errors[0].message


def test_a_file_is_at_its_place_when_it_is_whole_or_not_at_all(home: Path) -> None:
    tenant, id = uuid.uuid4(), uuid.uuid4()
    place = storage.path_of(tenant, id)
    with storage.writing(tenant, id) as file:
        file.write(b"one\n")
        file.flush()
        assert not place.exists()
        file.write(b"two\n")
    assert place.read_bytes() == b"one\ntwo\n"


def test_a_file_that_cannot_be_written_leaves_nothing(home: Path) -> None:
    place = storage.path_of(uuid.uuid4(), uuid.uuid4())
    tenant, id = uuid.UUID(place.parent.name), uuid.UUID(place.name)

    def write_until_the_disk_is_full() -> None:
        with storage.writing(tenant, id) as file:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_until_the_disk_is_full()
    assert list(place.parent.iterdir()) == []


@pytest.mark.django_db
def test_a_line_has_one_result(acme: Any, rival: Any) -> None:
    def batch_of(party: Any) -> Batch:
        return Batch.objects.create(
            tenant=party.tenant, endpoint=ENDPOINT, input_file=uuid.uuid4(), expires=timezone.now()
        )

    with tenant_scope(rival.tenant.pk):
        theirs = batch_of(rival)
        BatchLine.objects.create(tenant=rival.tenant, batch=theirs, number=1, ok=True, text="{}")
    with tenant_scope(acme.tenant.pk):
        ours = batch_of(acme)
        BatchLine.objects.create(tenant=acme.tenant, batch=ours, number=1, ok=True, text="{}")
        for ok in (True, False):
            with pytest.raises(IntegrityError), transaction.atomic():
                BatchLine.objects.create(tenant=acme.tenant, batch=ours, number=1, ok=ok, text="{}")
        with pytest.raises(CrossTenantAccess):
            BatchLine.objects.create(tenant=acme.tenant, batch=theirs, number=2, ok=True, text="{}")
