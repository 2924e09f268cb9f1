"""What may import what: the tiers apart, and the platform's rows only downwards."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sources import ROOT, Module, modules

MODEL_LIBRARIES = {"torch", "transformers", "triton", "safetensors", "gguf", "numpy"}
WEB_LIBRARIES = {"django", "channels", "celery", "allauth", "unfold", "ninja", "uvicorn"}

ROWS = [
    {"batches"},
    {"chat", "api", "pool", "operations"},
    {"generations"},
    {"usage", "assistants"},
    {"tenants", "engines"},
]
"""The platform's applications, from the top row to the bottom one."""

COMPOSITION = {"settings", "urls", "asgi", "celery"}
"""Modules that put the applications together: they import from every row, nothing imports them."""


def row_of(application: str) -> int | None:
    return next((number for number, row in enumerate(ROWS) if application in row), None)


def application_of(name: str) -> str:
    """``pagoda.chat.models`` -> ``chat``."""
    return [*name.split("."), ""][1]


def top_level(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("module", modules("pagoda"), ids=lambda module: module.name)
def test_the_web_tier_never_imports_a_model_library(module: Module) -> None:
    assert not top_level(module.imports()) & (MODEL_LIBRARIES | {"pagoda_kernels"})


@pytest.mark.parametrize("module", modules("pagoda"), ids=lambda module: module.name)
def test_the_web_tier_meets_the_engine_only_in_its_protocol_client_and_address(module: Module) -> None:
    inner = {name for name in module.imports() if name.startswith("pagoda_inference.")}
    allowed = ("pagoda_inference.protocol", "pagoda_inference.client", "pagoda_inference.address")
    assert not {name for name in inner if not name.startswith(allowed)}


@pytest.mark.parametrize("module", modules("pagoda_inference") + modules("pagoda_kernels"), ids=lambda m: m.name)
def test_the_engine_never_imports_the_web_tier(module: Module) -> None:
    assert not top_level(module.imports()) & (WEB_LIBRARIES | {"pagoda"})


@pytest.mark.parametrize("module", modules("pagoda_kernels"), ids=lambda module: module.name)
def test_kernels_know_nothing_of_the_engine(module: Module) -> None:
    assert "pagoda_inference" not in top_level(module.imports())


IN_ROWS = [module for module in modules("pagoda") if row_of(application_of(module.name)) is not None]


@pytest.mark.parametrize("module", IN_ROWS, ids=lambda module: module.name)
def test_rows_import_only_downwards(module: Module) -> None:
    own = application_of(module.name)
    own_row = row_of(own)
    assert own_row is not None
    for name in module.imports():
        other = application_of(name)
        if not name.startswith("pagoda.") or other == own:
            continue
        assert other not in COMPOSITION, f"{module.name} imports {name}: use django.conf.settings or shared_task"
        other_row = row_of(other)
        assert other_row is None or other_row > own_row, f"{module.name} imports {name}, which is not in a row below it"


def test_every_application_has_a_row() -> None:
    folders = {application_of(module.name) for module in modules("pagoda") if module.is_package} - {""}
    assert folders <= set().union(*ROWS), "say in ROWS (and docs/architecture.md) where the application stands"


def test_the_shared_modules_of_the_platform_know_no_application() -> None:
    for module in modules("pagoda"):
        name = application_of(module.name)
        if name and row_of(name) is None and name not in COMPOSITION:
            known = {application_of(other) for other in module.imports() if other.startswith("pagoda.")}
            assert not {other for other in known if row_of(other) is not None}, module.name


def loaded_after(script: str) -> set[str]:
    """Top-level packages in sys.modules after ``script``, in a process of its own."""
    process = subprocess.run(
        [sys.executable, "-c", f"import sys\n{script}\nprint(' '.join(sys.modules))"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return top_level(set(process.stdout.split()))


def test_the_running_web_process_has_no_model_library() -> None:
    loaded = loaded_after("import pagoda.asgi; from django.urls import get_resolver; get_resolver().url_patterns")
    assert "django" in loaded
    assert not loaded & (MODEL_LIBRARIES - {"numpy"} | {"pagoda_kernels"})


def test_the_running_worker_has_no_model_library() -> None:
    loaded = loaded_after(
        "from pagoda.celery import app; import django; django.setup(); app.loader.import_default_modules()"
    )
    assert "celery" in loaded
    assert not loaded & (MODEL_LIBRARIES - {"numpy"} | {"pagoda_kernels"})


def test_the_engines_command_and_server_have_no_web_library() -> None:
    loaded = loaded_after("import pagoda_inference.command, pagoda_inference.server, pagoda_inference.engine")
    assert "pagoda_inference" in loaded
    assert not loaded & (WEB_LIBRARIES | {"pagoda"})


def test_the_client_side_of_the_wire_needs_neither_tier() -> None:
    loaded = loaded_after("import pagoda_inference.protocol, pagoda_inference.client, pagoda_inference.address")
    assert not loaded & (MODEL_LIBRARIES | WEB_LIBRARIES)
