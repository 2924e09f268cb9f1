"""The bodies that the API's page begins with: each is one that works, once the model is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pagoda

PATH = Path(pagoda.__path__[0]) / "tenants" / "static" / "pagoda" / "api-examples.json"
EXAMPLES: dict[str, dict[str, Any]] = json.loads(PATH.read_text())
GENERATIONS = [path for path, body in EXAMPLES.items() if "model" in body]


def test_every_example_is_of_an_address_with_a_body() -> None:
    from pagoda.api.v1 import api

    described = api.get_openapi_schema()["paths"]
    for path in EXAMPLES:
        assert "application/json" in described[path]["post"]["requestBody"]["content"]


@pytest.mark.parametrize("path", GENERATIONS)
async def test_an_example_works_once_the_model_is_named(http: Any, path: str) -> None:
    served = (await http.get("/models")).json()["data"][0]["id"]
    body = EXAMPLES[path]
    refused = await http.post(path.removeprefix("/v1"), json=body)
    assert refused.status_code == 404
    assert body["model"] == "a name from GET /v1/models"
    assert "GET /v1/models" in refused.json()["error"]["message"]
    answer = await http.post(path.removeprefix("/v1"), json=body | {"model": served})
    assert answer.status_code == 200, answer.text


async def test_the_example_of_a_batch_only_lacks_its_file(http: Any) -> None:
    error = (await http.post("/batches", json=EXAMPLES["/v1/batches"])).json()["error"]
    assert error["param"] == "input_file_id"
