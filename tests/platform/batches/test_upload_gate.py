"""Who may not upload is told so by the request's head: nothing of the body is waited for, and none of it is stored."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from asking import read
from openai import AsyncOpenAI

from pagoda.tenants.keys import revoke_key

MIB = 1 << 20


@pytest.fixture
def spooled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every body that Django has begun to take in."""
    spools: list[Any] = []
    make = tempfile.SpooledTemporaryFile

    def recorded(*args: Any, **kwargs: Any) -> Any:
        spools.append(make(*args, **kwargs))
        return spools[-1]

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", recorded)
    return spools


async def answer_to_head(site: str, authorization: str | None, path: str = "/v1/files") -> tuple[int, str]:
    """Status and error code of an upload of 200 MiB of which only the head is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(site).port)
    head = [
        f"POST {path} HTTP/1.1",
        "host: localhost",
        "content-type: multipart/form-data; boundary=x",
        f"content-length: {200 * MIB}",
        *([] if authorization is None else [f"authorization: {authorization}"]),
    ]
    writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
    try:
        async with asyncio.timeout(30):
            status = int((await reader.readuntil(b"\r\n")).split(b" ")[1])
            await reader.readuntil(b"\r\n\r\n")
            size = int((await reader.readuntil(b"\r\n")).strip(), 16)
            error = json.loads(await reader.readexactly(size))["error"]
    finally:
        writer.close()
    return status, error["code"]


@pytest.mark.parametrize("authorization", [None, "Basic YTpi", "Bearer nonsense", f"Bearer pgd_abcdefgh_{'x' * 43}"])
@pytest.mark.parametrize("path", ["/v1/files", "/v1/files/"])
async def test_strangers_are_refused_before_the_body(
    site: str, spooled: list[Any], authorization: str | None, path: str
) -> None:
    assert await answer_to_head(site, authorization, path) == (401, "invalid_api_key")
    assert spooled == []


async def test_a_key_without_the_scope_and_a_revoked_one_are_refused_before_the_body_and_the_rivals_works(
    site: str, make_key: Any, acme: Any, rival_client: AsyncOpenAI, spooled: list[Any]
) -> None:
    _row, narrow = await make_key(acme, scopes=["chat"])
    assert await answer_to_head(site, f"Bearer {narrow}") == (403, "insufficient_scope")
    row, ended = await make_key(acme)
    await read(revoke_key)(row, who=acme.admin)
    assert await answer_to_head(site, f"Bearer {ended}") == (401, "invalid_api_key")
    assert spooled == []
    file = await rival_client.files.create(file=("a.jsonl", bytes(MIB)), purpose="batch")
    assert file.bytes == MIB
    assert len(spooled) == 1


async def test_a_client_that_sends_everything_first_hears_why(site: str, home: Path, spooled: list[Any]) -> None:
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key="nonsense", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.files.create(file=("a.jsonl", bytes(30 * MIB)), purpose="batch")
    assert spooled == []
    assert list((home / "files").rglob("*")) == []
