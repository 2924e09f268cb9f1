"""A real engine with the echo model and a pool of 64 blocks, as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings

from pagoda.engines import connections
from pagoda.pool import pushing
from pagoda_inference.client import EngineUnavailable
from pagoda_inference.protocol import AccountReport, ModelInfo

sys.path.insert(0, str(Path(__file__).parents[1]))

from engine_at_hand import new_address

TOTAL_BLOCKS = 64


@pytest.fixture(scope="session")
def engine_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address. Shared by the tests: each brings accounts of its own."""
    address = new_address()
    start = "from pagoda_inference.command import main; main()"
    command = [sys.executable, "-c", start, "serve", "--model", "echo", "--address", address]
    sizes = ["--pool-tokens", str(16 * TOTAL_BLOCKS), "--block-size", "16", "--context-length", "512"]
    environment = os.environ | {"PAGODA_HOME": str(tmp_path_factory.mktemp("engine"))}
    process = subprocess.Popen([*command, *sizes], env=environment, stdout=subprocess.DEVNULL)
    try:
        _wait_until_ready(address, process)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=20)


def _wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the engine ended"
        try:
            with connections.sync_client(address) as client:
                client.models()
                return
        except EngineUnavailable:
            time.sleep(0.1)  # before the socket exists there is nothing to wait on
    raise AssertionError("the engine did not become ready")


@pytest.fixture
def engine(engine_process: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the only engine in PAGODA_ENGINES. One that is there is waited for."""
    monkeypatch.setattr(pushing, "TIMEOUT_S", 60.0)
    monkeypatch.setattr(settings, "PAGODA_ENGINES", [engine_process])
    return engine_process


@pytest.fixture
def in_engine(engine: str) -> Callable[[], dict[str, AccountReport]]:
    """The accounts that the engine has now, by id."""

    def ask() -> dict[str, AccountReport]:
        with connections.sync_client(engine, 60) as client:
            return {account.id: account for account in client.watch_once().accounts}

    return ask


@pytest.fixture
def info() -> ModelInfo:
    """What an engine of 64 blocks says of itself."""
    sizes = {"block_size": 16, "total_blocks": TOTAL_BLOCKS, "bytes_per_block": 2**20}
    return ModelInfo("echo", 512, 256, "bytes", "cpu", **sizes, instance="i")
