"""The engine as a process: model and loop in one thread, the server on the event loop, from start to graceful stop."""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import uuid_utils

from pagoda_inference import logs
from pagoda_inference.address import Address
from pagoda_inference.engine import Engine, Observer, Outcome
from pagoda_inference.generation_store import GenerationStore
from pagoda_inference.kv.accounts import AccountsRefused
from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.transfers import Transfers
from pagoda_inference.listening import claim
from pagoda_inference.metrics import Metrics
from pagoda_inference.model.loading import load_model
from pagoda_inference.model.tokenizer import ChatTokenizer
from pagoda_inference.pace import Pace
from pagoda_inference.protocol import Account, ModelInfo
from pagoda_inference.rates import measure_rates
from pagoda_inference.scheduling.scheduler import Scheduler
from pagoda_inference.server import Server, Tls
from pagoda_inference.service import Service
from pagoda_inference.settings import Settings, SettingsError
from pagoda_inference.speculation.start import make_speculation
from pagoda_inference.swap_space import make_tiers, preemption_cost

logger = logging.getLogger(__name__)

HOUSEKEEPING_S = 5.0
STOP_TIMEOUT_S = 10.0
"""How long the engine's thread may take to end its step."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the engine's thread has made ready."""

    engine: Engine
    tokenizer: ChatTokenizer
    info: ModelInfo


class EngineThread(threading.Thread):
    """Loads the model and runs the engine loop, all on this one thread: torch keeps its worker threads per caller.

    loaded: done when the engine can take requests, or with what prevented it. ended: set on ``loop`` when the thread is
    over. failed: the loop ended by a fault of its own.
    """

    def __init__(self, settings: Settings, store: GenerationStore, metrics: Metrics) -> None:
        super().__init__(name="engine", daemon=True)
        self.loaded: Future[Loaded] = Future()
        self.ended = asyncio.Event()
        self.failed = False
        self._settings = settings
        self._store = store
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()

    def run(self) -> None:
        try:
            try:
                with without_collections():
                    loaded = load(self._settings, self._deliver, self._metrics)
            except BaseException as error:
                self.loaded.set_exception(error)
                return
            self.loaded.set_result(loaded)
            try:
                try:
                    loaded.engine.run()
                finally:
                    loaded.engine.close()
            except BaseException as error:
                logs.failure(logger, "engine_failed", error)
                self.failed = True
        finally:
            self._call_loop(self.ended.set)

    def _deliver(self, outcomes: list[Outcome]) -> None:
        self._call_loop(self._store.deliver, outcomes)

    def _call_loop(self, function: Callable[..., object], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


@contextmanager
def without_collections() -> Iterator[None]:
    """No search for garbage while libraries are imported and a model is loaded: nearly all that they make stays, and
    looking through it again and again took a quarter of that time. Nor is it looked through later, while steps run."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.collect()
        gc.freeze()
    finally:
        if collected:
            gc.enable()


def load(settings: Settings, deliver: Callable[[list[Outcome]], None], metrics: Metrics) -> Loaded:
    """Model, pool, scheduler and engine as the settings say. Raises ModelLoadError or SettingsError."""
    accounts = [] if settings.accounts is None else read_accounts(settings.accounts)
    backend, tokenizer, model_id = load_model(
        settings.model,
        dtype=settings.dtype,
        device=settings.device,
        block_size=settings.block_size,
        pool_tokens=settings.pool_tokens,
        pool_gib=settings.pool_gib,
        context_length=settings.context_length,
        step_ms=settings.step_ms,
        draft=settings.draft,
        tensor_parallel=settings.tensor_parallel,
        graph_rows=settings.max_running if settings.cuda_graphs else 0,
        compile=settings.compile,
        home=settings.home,
    )
    woken: list[Engine] = []

    def wake() -> None:
        for engine in woken:
            engine.wake()

    tiers = make_tiers(settings, backend, notify=wake)
    pool = Pool(
        backend.total_blocks,
        backend.block_size,
        model=backend.fingerprint,
        secret=tiers.secret,
        require_accounts=settings.require_accounts,
    )
    rates = measure_rates(backend)
    scheduler = Scheduler(
        pool,
        token_budget=settings.token_budget,
        max_running=settings.max_running,
        max_waiting_per_account=settings.max_waiting,
        transfers=Transfers(pool, tiers),
        cost=preemption_cost(settings, backend, tiers, rates),
    )
    if settings.accounts is not None:
        try:
            scheduler.set_accounts(accounts, 0)
        except AccountsRefused as refusal:
            raise SettingsError(f"the accounts file {settings.accounts} is refused: {refusal}") from None
    pace = Pace(settings.step_target_ms / 1000, rates)
    instance = str(uuid_utils.uuid7())
    engine = Engine(
        backend,
        scheduler,
        instance=instance,
        deliver=deliver,
        observer=Observer(metrics.step, metrics.finished),
        pace=pace,
        speculation=make_speculation(settings, backend, scheduler, rates, pace),
        debug=settings.debug,
    )
    woken.append(engine)
    info = ModelInfo(
        id=model_id,
        context_length=backend.context_length,
        vocabulary_size=backend.vocabulary_size,
        dtype=backend.dtype,
        device=backend.device,
        block_size=backend.block_size,
        total_blocks=backend.total_blocks,
        bytes_per_block=backend.bytes_per_block,
        instance=instance,
        version=importlib.metadata.version("pagoda-chat"),
        longest_token=tokenizer.longest_token,
    )
    return Loaded(engine, tokenizer, info)


class AccountInFile(Account, frozen=True, forbid_unknown_fields=True):
    """An account as an operator writes it: a name that is none is a slip, not a later version's field."""


def read_accounts(path: Path) -> list[Account]:
    """A JSON list of accounts with the fields of ``Account``, in blocks. Raises SettingsError, for other fields too."""
    try:
        return list(msgspec.json.decode(path.read_bytes(), type=list[AccountInFile]))
    except OSError as error:
        raise SettingsError(f"the accounts file {path} cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise SettingsError(f"the accounts file {path} is not a list of accounts: {error}") from None


def check_exposure(settings: Settings, address: Address) -> None:
    """Raises SettingsError when strangers could use the engine, or TLS is half set."""
    if not address.is_local and not settings.token:
        raise SettingsError(
            f"PAGODA_ENGINE_TOKEN must be set to listen on {address}: other machines can reach that address"
        )
    if address.tls and settings.tls_certificate is None:
        raise SettingsError(f"{address} needs PAGODA_ENGINE_TLS_CERTIFICATE and PAGODA_ENGINE_TLS_KEY")


async def serve(settings: Settings, stop: asyncio.Event | None = None) -> bool:
    """Serve until SIGTERM or SIGINT, or else ``stop``. False when the engine failed.

    Raises AddressError, AddressTaken, SettingsError or ModelLoadError, each one sentence, when it cannot begin.
    """
    address = Address.parse(settings.engine_address)
    check_exposure(settings, address)
    if stop is None:
        stop = asyncio.Event()
        _stop_on_signals(stop)
    tls = None
    if address.tls and settings.tls_certificate is not None and settings.tls_key is not None:
        tls = Tls(settings.tls_certificate, settings.tls_key)
    with claim(address, settings.home):
        store = GenerationStore(max_bytes=settings.log_bytes, keep_s=settings.keep_s)
        metrics = Metrics()
        if settings.metrics_address:
            metrics.listen(settings.metrics_address)
        server = Server(address, token=settings.token or None, tls=tls)
        await server.start()
        logs.event(logger, "listening", address=str(address), model=settings.model or "default")
        thread = EngineThread(settings, store, metrics)
        thread.start()
        try:
            return await _until_stopped(server, store, metrics, thread, stop)
        finally:
            await server.stop()


async def _until_stopped(
    server: Server, store: GenerationStore, metrics: Metrics, thread: EngineThread, stop: asyncio.Event
) -> bool:
    stopped = asyncio.create_task(stop.wait())
    loading = asyncio.wrap_future(thread.loaded)
    first: set[asyncio.Future[Any]] = {loading, stopped}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        loading.cancel()
        return True
    loaded = loading.result()
    service = Service(loaded.engine, loaded.tokenizer, loaded.info, store)
    metrics.read_from(loaded.engine, store, server)
    await server.serve(service)
    _log_ready(loaded.info)
    ended = asyncio.create_task(thread.ended.wait())
    housekeeping = asyncio.create_task(_expire(store))
    await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
    logs.event(logger, "stopping")
    service.stop()
    await asyncio.wait({ended}, timeout=STOP_TIMEOUT_S)
    for task in (housekeeping, stopped, ended):
        task.cancel()
    service.close()
    return not thread.failed


async def _expire(store: GenerationStore) -> None:
    while True:
        await asyncio.sleep(HOUSEKEEPING_S)
        store.expire()


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def _log_ready(info: ModelInfo) -> None:
    logs.event(
        logger,
        "ready",
        instance=info.instance,
        model=info.id,
        dtype=info.dtype,
        device=info.device,
        context_length=info.context_length,
        block_size=info.block_size,
        total_blocks=info.total_blocks,
        pool_mib=info.total_blocks * info.bytes_per_block >> 20,
    )
