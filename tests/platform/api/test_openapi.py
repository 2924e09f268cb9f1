"""The API's description, and the page that shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from asking import chat, text

from pagoda.api import errors
from pagoda.api.v1 import api

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "api.md"


def operations(schema: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, each) for path, methods in schema["paths"].items() for method, each in methods.items()]


async def test_the_file_describes_every_address_and_every_status(http: Any) -> None:
    schema = (await http.get("/openapi.json")).json()
    paths = set(schema["paths"])
    assert {"/v1/models", "/v1/models/{model}", "/v1/chat/completions", "/v1/completions", "/v1/responses"} <= paths
    for path, _, operation in operations(schema):
        statuses = {int(status) for status in operation["responses"]}
        assert {401, 403, 404, 405, 500, 503} <= statuses, path
        if "requestBody" in operation:
            assert {400, 413, 415} <= statuses, path


@pytest.mark.parametrize(
    ("method", "path"), [("post", "/v1/batches/{batch_id}/cancel"), ("delete", "/v1/files/{file_id}")]
)
async def test_what_may_not_be_possible_now_is_described(http: Any, method: str, path: str) -> None:
    """A final batch is not cancelled, a file in use not deleted: neither takes anything that could be malformed."""
    operation = (await http.get("/openapi.json")).json()["paths"][path][method]
    assert "requestBody" not in operation
    assert "invalid_value" in operation["responses"]["400"]["description"]


async def test_every_reference_of_the_file_leads_somewhere(http: Any) -> None:
    answer = await http.get("/openapi.json")
    known = answer.json()["components"]["schemas"]
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', answer.text))
    assert references
    assert references <= set(known)


async def test_answers_are_of_the_described_shape(http: Any) -> None:
    """Names and types of the first level: schemathesis looks deeper."""
    schema = (await http.get("/openapi.json")).json()
    for path, body in (("/chat/completions", chat()), ("/completions", text())):
        shape = schema["paths"][f"/v1{path}"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        described = schema["components"]["schemas"][shape["$ref"].rsplit("/", 1)[1]]
        answer = (await http.post(path, json=body)).json()
        assert set(described["required"]) <= set(answer) <= set(described["properties"])


async def test_the_page_needs_nothing_from_elsewhere(http: Any, site: str) -> None:
    """With the strict policy: no inline scripts, nothing from another host."""
    page = await http.get("/docs")
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    sources = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert sources
    for source in sources:
        assert source.startswith("/static/")
        assert (await http.get(f"{site}{source}")).status_code == 200
    for attributes, script in re.findall(r"<script([^>]*)>(.*?)</script>", page.text, re.S):
        assert "src=" in attributes or "application/json" in attributes, script


def test_every_error_code_is_documented_with_its_status() -> None:
    documented = dict(re.findall(r"^\| `([a-z_]+)` \| (\d{3}) \|", DOCUMENT.read_text(), re.M))
    assert documented == {code: str(status) for code, status in errors.ERROR_CODES.items()}


def fields_of(schema: dict[str, Any], path: str) -> set[str]:
    body = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    name = body["$ref"].rsplit("/", 1)[1]
    return set(schema["components"]["schemas"][name]["properties"])


RESOURCES = ("chat/completions", "completions", "responses", "tokenize", "detokenize", "embeddings")


@pytest.mark.parametrize("resource", RESOURCES)
def test_every_field_of_a_request_is_documented(resource: str) -> None:
    """In the tables of its own section of docs/api.md, or of the one about what all generations share."""
    document = DOCUMENT.read_text()
    sections = re.split(r"^## ", document, flags=re.M)
    own = [each for each in sections if each.startswith((f"POST /v1/{resource}\n", "How tokens are chosen\n"))]
    assert any(each.startswith("POST") for each in own), f"docs/api.md has no section POST /v1/{resource}"
    rows = re.findall(r"^\| (`[^|]+) \|", "\n".join(own), re.M)
    documented = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert fields_of(api.get_openapi_schema(), f"/v1/{resource}") <= documented
