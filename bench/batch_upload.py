"""The largest input there may be: how long its upload and its check take, and how much memory the web process needs."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from bench.batch_installation import Installation
from bench.results import Results

ENDPOINT = "/v1/chat/completions"
LINES, BYTES = 50_000, 200 << 20
"""Of a file, at most."""
LOOK_S = 0.1


async def measure(results: Results, site: Installation, client: httpx.AsyncClient, share: float) -> None:
    """``share`` of the largest file is uploaded, its batch checked, then cancelled: all but a few lines not run."""
    lines, size = round(LINES * share), round(BYTES * share)
    before = peak_mib(site.web_pid)
    with tempfile.TemporaryFile(prefix="pagoda-bench-") as file:
        for number in range(lines):
            file.write(_line(site.model, number, size // lines))
        file.seek(0)
        begun = time.perf_counter()
        upload: Any = {"purpose": (None, "batch"), "file": ("lines.jsonl", file)}
        stored = (await client.post("/files", files=upload)).raise_for_status().json()
        results.add("batch.upload.seconds", time.perf_counter() - begun, unit="s")
    results.add("batch.upload.mib", stored["bytes"] / (1 << 20), unit="MiB")
    results.add("batch.upload.lines", lines)
    after = peak_mib(site.web_pid)
    if before is None or after is None:
        results.skip("batch.upload.web_peak_mib", "the peak of a process' memory is read from /proc, which is not here")
    else:
        results.add_value("batch.upload.web_peak_mib", {"before": before, "after": after}, unit="MiB")
    await _check_and_cancel(results, client, stored["id"])


def peak_mib(pid: int) -> float | None:
    """The most main memory that a process has had so far; None where the system does not say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    kib = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return round(int(kib[0]) / 1024, 1) if kib else None


async def _check_and_cancel(results: Results, client: httpx.AsyncClient, file_id: str) -> None:
    wanted = {"input_file_id": file_id, "endpoint": ENDPOINT, "completion_window": "24h"}
    begun = time.perf_counter()
    batch = (await client.post("/batches", json=wanted)).raise_for_status().json()
    batch = await _until_not(client, batch, "validating")
    results.add("batch.upload.check_seconds", time.perf_counter() - begun, unit="s")
    if batch["status"] != "in_progress":
        raise RuntimeError(f"the batch ended as {batch['status']}: {batch['errors']}")
    begun = time.perf_counter()
    batch = (await client.post(f"/batches/{batch['id']}/cancel")).raise_for_status().json()
    batch = await _until_not(client, batch, "cancelling", "finalizing")
    results.add("batch.upload.cancel_seconds", time.perf_counter() - begun, unit="s")
    for id in (file_id, batch["output_file_id"], batch["error_file_id"]):
        if id is not None:
            (await client.delete(f"/files/{id}")).raise_for_status()


async def _until_not(client: httpx.AsyncClient, batch: dict[str, Any], *statuses: str) -> dict[str, Any]:
    while batch["status"] in statuses:
        await asyncio.sleep(LOOK_S)
        batch = (await client.get(f"/batches/{batch['id']}")).raise_for_status().json()
    return batch


def _line(model: str, number: int, size: int) -> bytes:
    """A request of so many bytes, with its line's end."""
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": ""}], "max_tokens": 1}
    line = {"custom_id": str(number), "method": "POST", "url": ENDPOINT, "body": body}
    body["messages"][0]["content"] = "x" * (size - 1 - len(json.dumps(line)))
    return json.dumps(line).encode() + b"\n"
