"""docs/engine.md has every setting, command, error code, log event and metric, and none that is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pagoda_inference
from pagoda_inference import protocol
from pagoda_inference.command import parser
from pagoda_inference.settings import Settings, described

DOCUMENT = (Path(__file__).parents[2] / "docs" / "engine.md").read_text()
SOURCES = Path(pagoda_inference.__file__).parent


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", DOCUMENT, re.M | re.S)
    assert section is not None, heading
    rows = [line.strip("| \n").split(" | ") for line in section.group(1).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def names(heading: str) -> set[str]:
    return {name for row in table(heading) for name in re.findall(r"`([^`]+)`", row[0])}


def test_every_setting_is_documented_with_its_flag_default_and_meaning():
    rows = {row[0].strip("`"): row for row in table("Settings")}
    assert set(rows) == {setting.variable for setting in described().values()}
    for field, setting in described().items():
        _, flag, default, meaning = rows[setting.variable]
        assert flag.strip("`") == (setting.flag or "")
        assert meaning == setting.help
        value = getattr(Settings(), field)
        if isinstance(value, bool):
            assert default == f"`{int(value)}`"
        elif field not in ("home", "address"):
            assert default == ("unset" if value in (None, "") else f"`{value}`".replace(".0`", "`"))


def test_every_command_is_documented():
    commands = parser()._subparsers._group_actions[0].choices
    assert {f"pagoda-inference {name}" for name in commands} == names("Commands")


def test_every_error_code_is_documented():
    codes = set(re.findall(r"[a-z]+_[a-z_]+|unavailable", protocol.Error.__doc__.split("Codes:")[1]))
    assert codes == names("Generations")


def test_every_log_event_is_documented():
    text = "\n".join(path.read_text() for path in SOURCES.rglob("*.py"))
    written = set(re.findall(r"(?:logs\.)?(?:event|failure)\(\s*logger,\s*\"(\w+)\"", text))
    assert {"ready", "generation_finished", "step_failed"} <= written
    assert written | {"message"} == names("Logs")


@pytest.fixture
async def metric_names(start_engine):
    from tests.inference.test_metrics import scrape, with_metrics

    engine, acme, rival = await with_metrics(start_engine)
    await acme.answer(max_tokens=3)
    await rival.answer(max_tokens=3)
    return {family.name for family in await scrape(engine)}


async def test_every_metric_is_documented(metric_names):
    assert metric_names == names("Metrics")
