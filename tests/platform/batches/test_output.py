"""The end of a batch: its files, written by whoever comes, however often that fails before."""

from __future__ import annotations

import errno
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from asking import read
from django.utils import timezone
from lines import billed, carried_out, each_once, line, lines, results, told
from openai import AsyncOpenAI

from pagoda.batches import output
from pagoda.batches.models import Batch, BatchLine, StoredFile


async def test_a_batch_whose_files_are_written_is_finalizing(
    client: AsyncOpenAI, submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []

    write_and_finish = output.write_and_finish

    def look_and_write(batch: Batch, now: datetime) -> bool:
        row = Batch.across_tenants.get(pk=batch.pk)
        seen.append((row.status, row.completed))
        return write_and_finish(batch, now)

    monkeypatch.setattr(output, "write_and_finish", look_and_write)
    batch = await carried_out(client, await submit(lines(3)))
    assert batch.status == "completed"
    assert seen == [("finalizing", 3)]


async def test_a_full_disk_at_the_end_costs_nothing_but_time(
    client: AsyncOpenAI, submit: Any, acme: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [*lines(5), line("bad", colour="red")]
    batch = await submit(asked)
    full = [True]

    def fsync(descriptor: int) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    batch = await carried_out(client, batch)
    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("finalizing", None, None)
    assert await read(StoredFile.across_tenants.count)() == 1
    assert len(list((home / "files" / acme.tenant.pk.hex).iterdir())) == 1
    assert await read(BatchLine.across_tenants.count)() == len(asked)
    full[0] = False
    await read(Batch.across_tenants.update)(lease_expires=timezone.now())
    batch = await carried_out(client, batch)
    answers, errors = await results(client, batch)
    assert (batch.status, len(answers), len(errors)) == ("completed", 5, 1)
    assert each_once(asked, answers, errors)
    assert await read(billed)(acme.tenant) == told(answers)
