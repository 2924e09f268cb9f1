"""Settings come from the environment, and docs/settings.md describes every one of them."""

import ast
import json
import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from pagoda import environment
from pagoda.secret_key import load_secret_key

ROOT = Path(__file__).parents[2]
PLATFORM = ROOT / "platform" / "pagoda"
READ_ELSEWHERE = {"PAGODA_ENGINE_CA"}  # by the engines' client


def variables_read():
    readers = {name for name in vars(environment) if name.startswith("read_")}
    for path in PLATFORM.rglob("*.py"):
        if path.name == "environment.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in readers:
                assert isinstance(node.args[0], ast.Constant), f"{path}: the name must be written out"
                yield node.args[0].value


def settings_under(**variables):
    """Values of pagoda.settings in a fresh interpreter."""
    code = (
        "import json, pagoda.settings as s;"
        "values = {name: value for name, value in vars(s).items() if name.isupper()};"
        "print(json.dumps(values, default=lambda value: str(value) if isinstance(value, s.Path) else None))"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PAGODA_", "DATABASE", "REDIS"))}
    environ = clean | {"DJANGO_SETTINGS_MODULE": "pagoda.settings"} | variables
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_variable_is_documented_and_every_documented_one_exists():
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE))
    assert documented == set(variables_read()) | READ_ELSEWHERE


def test_without_services_everything_lies_under_home(tmp_path):
    values = settings_under(PAGODA_HOME=str(tmp_path))
    assert values["DATABASES"]["default"]["NAME"] == str(tmp_path / "pagoda.sqlite3")
    assert values["DATABASES"]["default"]["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert values["CELERY_BROKER_TRANSPORT_OPTIONS"]["data_folder_in"].startswith(str(tmp_path))
    assert values["PAGODA_ENGINES"] == [f"unix:{tmp_path}/run/engine.sock"]
    assert values["CELERY_ACCEPT_CONTENT"] == ["json"]
    assert values["DEBUG"] is values["SESSION_COOKIE_SECURE"] is False


def test_services_are_chosen_by_their_addresses(tmp_path):
    values = settings_under(
        PAGODA_HOME=str(tmp_path),
        DATABASE_URL="postgresql://u:p@db:5432/pagoda",
        REDIS_URL="redis://cache:6379/0",
        PAGODA_ENGINES="one:1, tls:two:2",
        PAGODA_SITE_URL="https://chat.example/",
        PAGODA_ALLOWED_HOSTS="other.example",
        PAGODA_SMTP_URL="smtp+tls://me%40x:s%3Acret@mail.example",
    )
    database = values["DATABASES"]["default"]
    assert (database["CONN_MAX_AGE"], database["OPTIONS"]["pool"]["max_size"]) == (0, 16)
    assert "channels_redis" in values["CHANNEL_LAYERS"]["default"]["BACKEND"]
    assert values["CELERY_BROKER_URL"] == "redis://cache:6379/0"
    assert values["PAGODA_ENGINES"] == ["one:1", "tls:two:2"]
    assert values["SESSION_COOKIE_SECURE"] is values["CSRF_COOKIE_SECURE"] is True
    assert values["CSRF_TRUSTED_ORIGINS"] == ["https://chat.example"]
    assert {"chat.example", "other.example", "localhost"} <= set(values["ALLOWED_HOSTS"])
    assert (values["EMAIL_HOST_PASSWORD"], values["EMAIL_PORT"], values["EMAIL_USE_TLS"]) == ("s:cret", 587, True)


def test_the_secret_key_is_made_once_and_for_its_owner_alone(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: load_secret_key(tmp_path / "home"), range(32)))
    assert len(keys) == 1
    assert len(keys.pop()) > 60
    path = tmp_path / "home" / "secret_key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["secret_key"]


@pytest.mark.parametrize(
    ("read", "value"),
    [(environment.read_flag, "maybe"), (lambda name: environment.read_number(name, 1), "x")],
)
def test_a_wrong_value_is_named(monkeypatch, read, value):
    monkeypatch.setenv("PAGODA_TEST", value)
    with pytest.raises(ImproperlyConfigured, match="PAGODA_TEST"):
        read("PAGODA_TEST")
    monkeypatch.setenv("PAGODA_TEST", " ")
    assert not environment.read_flag("PAGODA_TEST")
    assert environment.read_number("PAGODA_TEST", 7) == 7
    assert environment.read_words("PAGODA_TEST") == []
