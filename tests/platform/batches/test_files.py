"""Files: uploaded, listed, fetched, deleted, and where their bytes are meanwhile."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from asking import read
from lines import carried_out, lines
from openai import AsyncOpenAI

from pagoda.batches import storage, uploads
from pagoda.batches.models import StoredFile

MIB = 1 << 20


def on_disk(home: Path) -> list[Path]:
    """Whatever lies in the folder of files."""
    return sorted(path for path in (home / "files").rglob("*") if path.is_file())


async def test_a_file_is_what_was_uploaded(client: AsyncOpenAI, home: Path, acme: Any) -> None:
    content = os.urandom(3 * MIB) + b"\r\n--boundary--\r\n"
    file = await client.files.create(file=("질문 1.jsonl", content), purpose="batch")
    assert (file.object, file.bytes, file.filename, file.purpose, file.status) == (
        *("file", len(content), "질문 1.jsonl", "batch", "processed"),
    )
    assert await client.files.retrieve(file.id) == file
    assert (await client.files.content(file.id)).content == content
    (path,) = on_disk(home)
    assert path == storage.path_of(acme.tenant.pk, (await read(StoredFile.across_tenants.get)()).pk)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_deleted_file_is_gone_from_the_disk(client: AsyncOpenAI, home: Path) -> None:
    file = await client.files.create(file=("a", b"{}"), purpose="batch")
    deleted = await client.files.delete(file.id)
    assert (deleted.id, deleted.deleted, deleted.object) == (file.id, True, "file")
    assert on_disk(home) == []
    for attempt in (client.files.retrieve(file.id), client.files.content(file.id), client.files.delete(file.id)):
        with pytest.raises(openai.NotFoundError):
            await attempt


async def test_files_of_a_deleted_tenant_are_gone_from_the_disk(client: AsyncOpenAI, home: Path, acme: Any) -> None:
    await client.files.create(file=("a", b"{}"), purpose="batch")
    await read(acme.tenant.delete)()
    assert on_disk(home) == []


async def test_the_input_of_a_batch_that_has_not_ended_stays(client: AsyncOpenAI, submit: Any) -> None:
    batch = await submit(lines(1))
    with pytest.raises(openai.BadRequestError):
        await client.files.delete(batch.input_file_id)
    await carried_out(client, batch)
    await client.files.delete(batch.input_file_id)
    assert (await client.batches.retrieve(batch.id)).input_file_id == batch.input_file_id


async def test_files_are_listed_in_pages_by_purpose_and_order(client: AsyncOpenAI, submit: Any) -> None:
    made = [(await client.files.create(file=("a", b"{}"), purpose="batch")).id for _ in range(3)]
    batch = await carried_out(client, await submit(lines(1)))
    made.append(batch.input_file_id)
    assert [file.id async for file in client.files.list(limit=2, purpose="batch")] == made[::-1]
    assert [file.id async for file in client.files.list(limit=3, order="asc")] == [*made, batch.output_file_id]
    assert [file.id async for file in client.files.list(purpose="batch_output")] == [batch.output_file_id]


async def test_a_file_that_is_too_large_leaves_nothing(
    client: AsyncOpenAI, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MAX_FILE_BYTES", 5 * MIB)
    kept = await client.files.create(file=("most", bytes(5 * MIB)), purpose="batch")
    for size in (5 * MIB + 1, 6 * MIB):
        with pytest.raises(openai.APIStatusError) as error:
            await client.files.create(file=("more", bytes(size)), purpose="batch")
        assert error.value.status_code == 413
    assert [file.id async for file in client.files.list()] == [kept.id]
    assert [path.stat().st_size for path in on_disk(home)] == [5 * MIB]


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ({"files": {"purpose": (None, "batch")}}, "file"),
        ({"files": {"purpose": (None, "batch"), "file": (None, "text")}}, "file"),
        ({"files": {"file": ("a", b"{}")}}, "purpose"),
        ({"data": {"purpose": "fine-tune"}, "files": {"file": ("a", b"{}")}}, "purpose"),
        ({"data": {"purpose": "batch", "other": "x"}, "files": {"file": ("a", b"{}")}}, "other"),
        ({"data": {"purpose": "batch", "expires_after[days]": "1"}, "files": {"file": ("a", b"{}")}}, "expires_after"),
        ({"data": {"purpose": "batch", "not plain": "x"}, "files": {"file": ("a", b"{}")}}, None),
        ({"data": {"purpose": "batch"}, "files": {"file": ("a" * 3000, b"{}")}}, "file"),
        ({"data": {"purpose": "batch"}, "files": {"file": ("a", b"")}}, "file"),
        ({"data": {"purpose": "batch"}, "files": [("file", ("a", b"{}")), ("file", ("b", b"{}"))]}, "file"),
        ({"data": {"purpose": "batch"}, "files": {"image": ("a", b"{}")}}, "image"),
    ],
)
async def test_what_an_upload_must_have(http: httpx.AsyncClient, home: Path, sent: Any, param: str | None) -> None:
    response = await http.post("/files", **sent)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
    assert "malformed" not in response.json()["error"]["message"]
    assert on_disk(home) == []


@pytest.mark.parametrize(
    ("content_type", "status"),
    [("application/json", 415), ("multipart/form-data", 400), ("multipart/form-data; boundary=x", 400)],
)
async def test_malformed_uploads_are_refused(
    http: httpx.AsyncClient, home: Path, content_type: str, status: int
) -> None:
    response = await http.post("/files", content=b"--y\r\nnonsense", headers={"content-type": content_type})
    assert response.status_code == status
    assert "error" in response.json()
    assert on_disk(home) == []


async def test_what_a_process_left_behind_when_it_died_is_swept(client: AsyncOpenAI, home: Path, acme: Any) -> None:
    kept = await client.files.create(file=("a", b"{}"), purpose="batch")
    folder = home / "files" / acme.tenant.pk.hex
    (folder / "0123.writing").write_bytes(b"half")
    (folder / ("0" * 32)).write_bytes(b"no row")
    (folder / "somebody's note").write_bytes(b"not ours")
    assert await read(storage.sweep)() == 0
    assert await read(storage.sweep)(time.time() + 2 * storage.ABANDONED_S) == 2
    assert {path.name for path in folder.iterdir()} == {kept.id.removeprefix("file-"), "somebody's note"}
