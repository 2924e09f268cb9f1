"""``pagoda-inference``: flags and environment, and one sentence with exit code 2 for what cannot be."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from pagoda_inference import command
from pagoda_inference.settings import Settings, SettingsError


def run(*arguments: str, capsys) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    return int(ended.value.code), capsys.readouterr().err


def test_flags_go_before_the_environment_and_that_before_defaults():
    environment = {"PAGODA_ENGINE_BLOCK_SIZE": "32", "PAGODA_ENGINE_MAX_RUNNING": "8", "PAGODA_ENGINE_DTYPE": ""}
    settings = Settings.read(environment, {"block_size": "64"})
    assert (settings.block_size, settings.max_running, settings.dtype) == (64, 8, "auto")


def test_every_setting_is_read_from_its_variable():
    settings = Settings.read(
        {
            "PAGODA_HOME": "/srv/pagoda",
            "PAGODA_MODEL": "echo",
            "PAGODA_ENGINE_REQUIRE_ACCOUNTS": "1",
            "PAGODA_ENGINE_POOL_GIB": "1.5",
            "PAGODA_ENGINE_STEP_MS": "2.5",
            "PAGODA_ENGINE_DEBUG": "true",
        }
    )
    assert settings.engine_address == "unix:/srv/pagoda/run/engine.sock"
    assert (settings.home, settings.model, settings.require_accounts) == (Path("/srv/pagoda"), "echo", True)
    assert (settings.pool_gib, settings.step_ms, settings.debug) == (1.5, 2.5, True)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"block_size": "0"}, "--block-size"),
        ({"block_size": "512"}, "--block-size"),
        ({"block_size": "many"}, "--block-size"),
        ({"max_running": "600"}, "--max-running"),
        ({"step_ms": "nan"}, "--step-ms"),
        ({"pool_tokens": "-5"}, "--pool-tokens"),
        ({"require_accounts": "1", "accounts": "file"}, "--require-accounts"),
    ],
)
def test_a_setting_that_cannot_be_is_named(flags, named):
    with pytest.raises(SettingsError, match=named):
        Settings.read({}, flags)


@pytest.mark.parametrize("variable", ["PAGODA_ENGINE_REQUIRE_ACCOUNTS", "PAGODA_ENGINE_KEEP_S"])
def test_a_variable_that_cannot_be_is_named(variable):
    with pytest.raises(SettingsError, match=variable):
        Settings.read({variable: "perhaps"})


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--model", "./nowhere/at-all"),
        ("serve", "--model", "echo", "--block-size", "0"),
        ("serve", "--model", "echo", "--address", "0.0.0.0:7123"),
        ("serve", "--model", "echo", "--address", "nonsense"),
        ("serve", "--model", "echo", "--accounts", "missing.json"),
        ("serve", "--model", "echo", "--metrics-address", "nonsense"),
        ("prepare-model", "--model", "./nowhere/at-all"),
    ],
    ids=" ".join,
)
def test_what_cannot_begin_is_one_sentence(arguments, capsys, socket_folder, monkeypatch):
    monkeypatch.setenv("PAGODA_HOME", str(socket_folder))
    monkeypatch.setattr(command.logs, "configure", lambda: None)
    code, error = run(*arguments, capsys=capsys)
    assert code == 2
    assert error.startswith("pagoda-inference: ")
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_an_unknown_flag_is_refused(capsys):
    code, error = run("serve", "--modle", "echo", capsys=capsys)
    assert code == 2
    assert "--modle" in error


async def test_an_address_in_use_is_one_sentence(engine, acme):
    program = ("-c", "from pagoda_inference.command import main; main()")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *program, "serve", "--model", "echo", "--address", engine.address),
        stderr=asyncio.subprocess.PIPE,
    )
    _, error = await process.communicate()
    assert process.returncode == 2
    assert error.decode() == (
        f"pagoda-inference: another engine is listening on {engine.address}: stop it first, or choose another\n"
    )
