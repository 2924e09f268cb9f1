"""Lines of batches, a runner for them, and what came of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from openai import AsyncOpenAI

from pagoda.batches import runner
from pagoda.usage.models import UsageRecord


def line(custom_id: str, question: str = "What is a pagoda?", **fields: Any) -> dict[str, Any]:
    """A greedy chat completion as a line of a batch."""
    body = {"model": "echo", "messages": [{"role": "user", "content": question}], "temperature": 0} | fields
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def text_line(custom_id: str, prompt: Any = "Once upon a time", **fields: Any) -> dict[str, Any]:
    """A greedy completion as a line of a batch."""
    body = {"model": "echo", "prompt": prompt, "temperature": 0} | fields
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": body}


def lines(count: int, **fields: Any) -> list[dict[str, Any]]:
    """So many questions, all different."""
    return [line(f"line-{number}", f"What is pagoda number {number}?", **fields) for number in range(count)]


def jsonl(asked: list[dict[str, Any]]) -> bytes:
    """Lines as a file of them."""
    return "\n".join(json.dumps(each) for each in asked).encode()


async def carried_out(client: AsyncOpenAI, batch: Any, **options: Any) -> Any:
    """The batch once a runner on this loop has nothing left to do."""
    await runner.run_waiting(lambda: False, **options)
    return await client.batches.retrieve(batch.id)


async def read_lines(client: AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    """Of an output or error file; none where there is no file."""
    if file_id is None:
        return []
    content = (await client.files.content(file_id)).text
    return [json.loads(text) for text in content.splitlines()]


async def results(client: AsyncOpenAI, batch: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Lines of the output file and of the error file."""
    return await read_lines(client, batch.output_file_id), await read_lines(client, batch.error_file_id)


def each_once(wanted: list[dict[str, Any]], *files: list[dict[str, Any]]) -> bool:
    """Whether the files together have every custom_id of the input exactly once."""
    found = Counter(line["custom_id"] for lines in files for line in lines)
    return found == Counter(line["custom_id"] for line in wanted)


def billed(tenant: Any) -> Counter[str]:
    """Tokens of the tenant's batches in the ledger, and how many records there are."""
    sums: Counter[str] = Counter()
    for record in UsageRecord.across_tenants.filter(tenant=tenant, purpose="batch"):
        sums += Counter(records=1, prompt=record.prompt_tokens, output=record.output_tokens)
    return sums


def told(output: list[dict[str, Any]]) -> Counter[str]:
    """The same of the answers in an output file."""
    sums: Counter[str] = Counter()
    for each in output:
        usage = each["response"]["body"]["usage"]
        sums += Counter(records=1, prompt=usage["prompt_tokens"], output=usage["completion_tokens"])
    return sums
