"""``pagoda-inference``: flags and environment, and one sentence with exit code 2 for what cannot be."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from pagoda_inference import command
from pagoda_inference.settings import Settings, SettingsError


def run(*arguments: str, capsys) -> tuple[int, str]:
    return command.run(arguments), capsys.readouterr().err


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
        ({"pool_gib": "inf"}, "--pool-gib"),
        ({"pool_gib": "1", "pool_tokens": "64"}, "--pool-tokens and --pool-gib"),
        ({"context_length": "1"}, "--context-length"),
        ({"dtype": "fp33"}, "--dtype cannot be 'fp33': expected auto, float32"),
        ({"device": "cuda:first"}, "--device"),
        ({"preemption": "never"}, "expected auto, swap or recompute"),
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
        ("serve", "--model", "echo", "--device", "cuda"),
        ("serve", "--model", "echo", "--dtype", "q4"),
        ("serve", "--model", "echo", "--tensor-parallel", "2"),
        ("serve", "--model", "echo", "--pool-gib", "0"),
        ("serve", "--model", "echo", "--pool-gib", "1e9"),
        ("serve", "--model", "echo", "--host-gib", "1e12"),
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


@pytest.mark.parametrize(
    ("accounts", "reason"),
    [
        ('[{"id": "acme", "weight": 0}]', "the weight must be a number above 0, not 0.0"),
        ('[{"id": "acme", "reservation": 20, "limit": 10}]', "the reservation (20 blocks) exceeds the limit"),
        ('[{"id": "acme"}, {"id": "globex"}, {"id": "acme"}]', "acme is in the list twice"),
        ('[{"id": "public"}]', "Choose another id"),
        ('[{"id": "acme", "reservation": 40}, {"id": "globex", "reservation": 30}]', "lower them by 6"),
        ('[{"id": "acme", "reservaton": 10}]', "unknown field `reservaton`"),
        ('{"id": "acme"}', "is not a list of accounts"),
    ],
)
def test_accounts_that_cannot_be_are_one_sentence(accounts, reason, capsys, socket_folder, monkeypatch):
    monkeypatch.setenv("PAGODA_HOME", str(socket_folder))
    monkeypatch.setattr(command.logs, "configure", lambda: None)
    file = socket_folder / "accounts.json"
    file.write_text(accounts)
    code, error = run("serve", "--model", "echo", "--pool-tokens", "1024", "--accounts", str(file), capsys=capsys)
    assert code == 2
    assert error.startswith(f"pagoda-inference: the accounts file {file} is")
    assert reason in error
    assert error.count("\n") == 1


def test_the_echo_model_is_prepared_already(capsys):
    assert command.run(["prepare-model", "--model", "echo"]) == 0
    assert capsys.readouterr().out == "echo: nothing to prepare\n"


def test_an_unknown_flag_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        command.run(["serve", "--modle", "echo"])
    assert ended.value.code == 2
    assert "--modle" in capsys.readouterr().err


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
