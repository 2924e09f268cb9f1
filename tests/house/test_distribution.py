"""The distribution: its wheel, its extras, its licence."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sources import PACKAGES, ROOT, modules

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def test_extras_are_web_engine_all_and_dev() -> None:
    assert set(PROJECT["optional-dependencies"]) == {"web", "engine", "all", "dev"}


def test_the_web_extra_has_no_model_library() -> None:
    web = names(PROJECT["optional-dependencies"]["web"]) | names(PROJECT["dependencies"])
    assert not web & {"torch", "transformers", "triton", "safetensors", "gguf", "accelerate"}


def test_the_engine_extra_has_no_web_library() -> None:
    engine = names(PROJECT["optional-dependencies"]["engine"]) | names(PROJECT["dependencies"])
    assert not {name for name in engine if name.startswith(("django", "channels", "celery", "uvicorn", "psycopg"))}


def test_no_extra_pulls_the_other_tier_in_through_a_dependency() -> None:
    """By the metadata of what is installed, with each dependency followed to its end."""
    from importlib.metadata import PackageNotFoundError, requires

    def closure(roots: set[str]) -> set[str]:
        seen: set[str] = set()
        pending = set(roots)
        while pending:
            name = pending.pop()
            seen.add(name)
            try:
                requirements = [Requirement(text) for text in requires(name) or []]
            except PackageNotFoundError:  # for another platform or Python
                continue
            wanted = {
                canonicalize_name(r.name) for r in requirements if not r.marker or r.marker.evaluate({"extra": ""})
            }
            pending |= wanted - seen
        return seen

    extras = PROJECT["optional-dependencies"]
    base = names(PROJECT["dependencies"])
    assert not closure(names(extras["web"]) | base) & {"torch", "transformers", "triton"}
    assert not closure(names(extras["engine"]) | base) & {"django", "channels", "celery"}


def test_every_dependency_is_pinned_for_the_one_command_start() -> None:
    pins = [
        line for line in (ROOT / "requirements/constraints.txt").read_text().splitlines() if line[:1] not in ("", "#")
    ]
    pinned = names(pins)
    wanted = names(PROJECT["dependencies"])
    for requirements in PROJECT["optional-dependencies"].values():
        wanted |= names(requirements)
    assert wanted - pinned == {"pagoda-chat", "triton"}, "triton's version is torch's own to choose"
    assert not [pin for pin in pins if "+" in pin or "/" in pin], "no local versions (+cpu), no addresses"


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert PROJECT["license"] == "Apache-2.0"


@pytest.mark.slow
def test_the_wheel_holds_the_three_packages(tmp_path: Path) -> None:
    """Built as a user's pip builds it, then read."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)],
        check=True,
    )
    (wheel,) = tmp_path.glob("pagoda_chat-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        content = set(archive.namelist())
    for package, root in PACKAGES.items():
        for module in modules(package):
            assert str(module.path.relative_to(ROOT / root)) in content
    folders = {name.split("/")[0] for name in content}
    assert {name for name in folders if not name.endswith(".dist-info")} == set(PACKAGES)
