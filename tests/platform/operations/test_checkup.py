"""`manage.py doctor`: each finding is right, and each failure says what to do."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from pagoda.operations.checkup import Finding, check_up

pytestmark = pytest.mark.django_db


def findings() -> dict[str, Finding]:
    return {finding.name: finding for finding in check_up()}


def test_a_sound_database_and_home_pass(home: Path) -> None:
    found = findings()
    for name in ("home", "disk", "database", "migrations", "redis"):
        assert found[name].ok, found[name]


def test_a_missing_engine_model_and_front_end_say_what_to_do(home: Path, settings, tmp_path: Path) -> None:
    settings.PAGODA_ENGINES = [f"unix:{tmp_path}/none.sock"]
    settings.PAGODA_MODEL = ""
    settings.PAGODA_FRONTEND_DIST = tmp_path / "dist"
    found = findings()
    assert "make up" in found["engines"].advice
    assert "make model" in found["model"].advice
    assert "make frontend" in found["frontend"].advice


def test_a_missing_model_path_blames_the_setting(home: Path, settings, tmp_path: Path) -> None:
    settings.PAGODA_MODEL = str(tmp_path / "nowhere")
    assert "PAGODA_MODEL" in findings()["model"].advice


def test_the_command_fails_where_a_check_fails(home: Path, settings, tmp_path: Path) -> None:
    settings.PAGODA_ENGINES = [f"unix:{tmp_path}/none.sock"]
    out = StringIO()
    with pytest.raises(SystemExit) as status:
        call_command("doctor", stdout=out)
    assert status.value.code == 1
    assert "-> Start it" in out.getvalue()
