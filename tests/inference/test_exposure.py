"""Who may talk to an engine, and where it may listen."""

from __future__ import annotations

import asyncio
import shutil
import socket
import stat
import subprocess

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pagoda_inference import daemon
from pagoda_inference.address import Address, AddressError, default_address
from pagoda_inference.client import EngineClient, EngineRefused, EngineUnavailable, SyncEngineClient
from pagoda_inference.daemon import check_exposure
from pagoda_inference.listening import AddressTaken, claim
from pagoda_inference.model.echo import EchoBackend, EchoTokenizer
from pagoda_inference.protocol import SERVICE, SetAccounts
from pagoda_inference.settings import Settings, SettingsError
from tests.inference.running_engine import Tenant


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_without_the_token_nothing_is_answered(start_engine):
    engine = await start_engine(token="right")
    assert (await Tenant("acme", await engine.client("right")).answer(max_tokens=2)).finished.reason == "length"
    for token in (None, "wrong", "righ", "right2"):
        client = EngineClient(engine.address, token)
        with pytest.raises(EngineRefused, match="token"):
            await client.connect(5)
        await client.close()

    def blocking() -> None:
        with SyncEngineClient(engine.address, "wrong") as client:
            for call in (client.models, client.watch_once, lambda: client.set_accounts(SetAccounts(1, ()))):
                with pytest.raises(EngineRefused, match="token"):
                    call()

    await asyncio.to_thread(blocking)
    assert (await engine.report()).accounts_version == 0


@pytest.mark.parametrize("address", ["0.0.0.0:7000", "192.168.0.9:7000", "[::]:7000", "tls:engine.example:7000"])
def test_an_address_that_others_can_reach_needs_a_token(address):
    with pytest.raises(SettingsError, match="PAGODA_ENGINE_TOKEN"):
        check_exposure(Settings(), Address.parse(address))


@pytest.mark.parametrize("address", ["127.0.0.1:7000", "[::1]:7000", "localhost:7000", "unix:/tmp/engine.sock"])
def test_an_address_of_this_machine_needs_none(address):
    check_exposure(Settings(), Address.parse(address))


def test_tls_needs_a_certificate():
    with pytest.raises(SettingsError, match="CERTIFICATE"):
        check_exposure(Settings(token="t"), Address.parse("tls:127.0.0.1:7000"))


async def test_it_listens_on_tcp(start_engine):
    engine = await start_engine(address=f"127.0.0.1:{free_port()}")
    assert (await Tenant("acme", await engine.client()).answer(max_tokens=2)).finished.reason == "length"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
async def test_it_speaks_tls(start_engine, socket_folder, monkeypatch):
    certificate, key = socket_folder / "certificate.pem", socket_folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    command = ["openssl", "req", "-x509", *kind, "-keyout", str(key), "-out", str(certificate), *subject]
    subprocess.run(command, check=True, capture_output=True)  # noqa: ASYNC221 - milliseconds, before anything runs
    monkeypatch.setenv("PAGODA_ENGINE_CA", str(certificate))
    port = free_port()
    engine = await start_engine(
        address=f"tls:localhost:{port}", tls_certificate=certificate, tls_key=key, token="secret"
    )
    assert (await Tenant("acme", await engine.client("secret")).answer(max_tokens=2)).finished.reason == "length"
    plain = EngineClient(f"localhost:{port}", "secret")
    with pytest.raises(EngineUnavailable):
        await plain.connect(0.5)
    await plain.close()


async def test_the_socket_is_its_owners_alone(engine, acme, socket_folder):
    path = Address.parse(engine.address).path
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    with claim(Address(path=socket_folder / "new" / "engine.sock")):
        assert stat.S_IMODE((socket_folder / "new").stat().st_mode) == 0o700


async def test_a_second_engine_on_the_same_address_refuses_to_start(start_engine, acme, engine):
    for address in (engine.address, f"127.0.0.1:{free_port()}"):
        first = await start_engine(address=address) if address != engine.address else engine
        await first.client()
        second = await start_engine(address=address)
        with pytest.raises(AddressTaken):
            await second.stopped()
        assert (await Tenant("acme", await first.client()).answer(max_tokens=2)).finished.reason == "length"


def test_what_is_no_socket_is_not_removed(socket_folder):
    path = socket_folder / "engine.sock"
    path.write_text("precious")
    with pytest.raises(AddressTaken, match="no socket"), claim(Address(path=path)):
        pass
    assert path.read_text() == "precious"


def test_directories_above_the_sockets_own_are_made_under_the_home_alone(tmp_path, socket_folder):
    path = socket_folder / "home" / "run" / "engine.sock"
    for home in (None, tmp_path):
        with pytest.raises(AddressTaken, match="No such file or directory"), claim(Address(path=path), home):
            pass
    assert not (socket_folder / "home").exists()
    with claim(Address(path=path), socket_folder / "home"):
        assert path.parent.is_dir()


def test_a_directory_that_takes_no_files_is_refused_in_a_sentence():
    with (
        pytest.raises(AddressTaken, match="no socket can be made in /proc: "),
        claim(Address.parse("unix:/proc/x.sock")),
    ):
        pass


def test_the_default_address_is_under_home_or_short(tmp_path):
    assert default_address(tmp_path) == f"unix:{tmp_path}/run/engine.sock"
    deep = tmp_path / ("deep" * 30)
    short = default_address(deep)
    assert short == default_address(deep)
    assert short != default_address(tmp_path / ("deep" * 31))
    assert Address.parse(short).path is not None


@pytest.mark.parametrize("text", ["", "unix:", "host", "host:", ":80", "host:port", "host:99999", "unix:/" + "x" * 120])
def test_what_is_no_address_is_one_sentence(text):
    with pytest.raises(AddressError):
        Address.parse(text)


async def test_health_is_serving_once_the_model_is_loaded(start_engine, monkeypatch):
    loading, loaded = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def load(model: str, **_: object):
        loop.call_soon_threadsafe(loading.set)
        asyncio.run_coroutine_threadsafe(loaded.wait(), loop).result()
        return EchoBackend(), EchoTokenizer(), "slow"

    monkeypatch.setattr(daemon, "load_model", load)
    engine = await start_engine()
    await loading.wait()
    async with grpc.aio.insecure_channel(engine.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        async def status(service: str) -> str:
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

        assert [await status(name) for name in ("", SERVICE)] == ["NOT_SERVING"] * 2
        with pytest.raises(EngineUnavailable, match="loading"):
            await EngineClient(engine.address).connect(2)
        loaded.set()
        await engine.client()
        assert [await status(name) for name in ("", SERVICE)] == ["SERVING"] * 2
