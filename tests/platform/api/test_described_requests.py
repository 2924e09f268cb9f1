"""Requests made from the API's own description, at its edges and beyond: every status that comes is described.

PAGODA_SOAK_SEED: where they are drawn from.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SEED = os.environ.get("PAGODA_SOAK_SEED", "20261201")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.timeout(900)
async def test_no_request_gets_an_answer_that_is_not_described(http: Any, site: str, key: str, tmp_path: Path) -> None:
    """As another process, with the one model there is named in the description: most requests then get to it."""
    schema = (await http.get("/openapi.json")).json()
    for shape in schema["components"]["schemas"].values():
        if {"model"} < set(shape.get("properties", {})) and shape.get("additionalProperties") is False:
            shape["properties"]["model"] = {"const": "echo"}
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(schema))
    command = [
        *(str(Path(sys.executable).parent / "schemathesis"), "run", str(path), "--url", site),
        *("-H", f"Authorization: Bearer {key}", "--max-examples", "10", "--seed", SEED),
        *("--checks", CHECKS, "--continue-on-failure"),
        # How long a busy machine takes, to answer and to draw requests, is no fault of the API.
        *("--request-timeout", "120", "--suppress-health-check", "all"),
    ]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, env={"NO_PROXY": "*", "PATH": ""}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
