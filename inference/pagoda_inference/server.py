"""gRPC over the service: authentication, framing, health. Messages are the structs of ``protocol``, not protobuf."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import grpc.aio
import msgspec
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from pagoda_inference import logs
from pagoda_inference.address import Address
from pagoda_inference.connection import Connection
from pagoda_inference.listening import AddressTaken
from pagoda_inference.protocol import MAX_MESSAGE_BYTES, METHODS, SERVICE, Command, Error, Watch, decoder, encode
from pagoda_inference.service import Service

logger = logging.getLogger(__name__)
Context: TypeAlias = grpc.aio.ServicerContext

MIN_WATCH_INTERVAL_S = 0.05
STOP_GRACE_S = 3.0
"""How long connections may take to read the last events when the engine stops."""

OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # two engines must not share a port silently
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),  # on a starved machine honest pings arrive in bursts: never hang up on them
]


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of a PEM certificate chain and its key."""

    certificate: Path
    key: Path


class _Envelope(msgspec.Struct):
    """What can be read of a command whose fields are wrong, so that its caller can be told."""

    type: str
    id: str = ""
    subscription: int = 0


_envelope_decoder = msgspec.msgpack.Decoder(_Envelope)


class Server:
    """Listens at once and answers UNAVAILABLE until ``serve`` gives it a service."""

    def __init__(self, address: Address, *, token: str | None = None, tls: Tls | None = None) -> None:
        self.connections = 0
        self._address = address
        self._token = token
        self._tls = tls
        self._service: Service | None = None
        self._server = grpc.aio.server(options=OPTIONS)
        self._health = health.aio.HealthServicer()
        self._stopping = asyncio.Event()
        self._streams: set[asyncio.Task[Any]] = set()

    async def start(self) -> int:
        """Bind and listen. Returns the TCP port (0 for a Unix socket). Raises AddressTaken."""
        self._server.add_generic_rpc_handlers((self._handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        target = self._address.target
        previous = os.umask(0o177)  # the socket is its owner's alone from the first moment
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(target)
            else:
                pair = (self._tls.key.read_bytes(), self._tls.certificate.read_bytes())
                port = self._server.add_secure_port(target, grpc.ssl_server_credentials([pair]))
        except RuntimeError:
            raise AddressTaken(f"{self._address} cannot be listened on: is it in use?") from None
        finally:
            os.umask(previous)
        await self._server.start()
        return port if self._address.path is None else 0

    async def serve(self, service: Service) -> None:
        """The model is loaded: answer from now on."""
        self._service = service
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def stop(self) -> None:
        """Say so to health checks, let every connection read what is left for it, then close."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        self._stopping.set()
        if self._streams:
            await asyncio.wait(self._streams, timeout=STOP_GRACE_S)
        await self._server.stop(grace=0.2)

    # --- methods ------------------------------------------------------------------------------------------------------

    def _handlers(self) -> grpc.GenericRpcHandler:
        unary = {
            "SetAccounts": lambda service, message: service.set_accounts(message),
            "Publish": lambda service, message: service.publish(message),
            "Purge": lambda service, message: service.purge(message),
            "GetModels": lambda service, message: _resolved(service.info),
            "Tokenize": lambda service, message: service.tokenize(message),
            "Detokenize": lambda service, message: service.detokenize(message),
        }
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(self._unary(name, act)) for name, act in unary.items()
        }
        handlers["Watch"] = grpc.unary_stream_rpc_method_handler(self._watch)
        handlers["Stream"] = grpc.stream_stream_rpc_method_handler(self._stream)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _unary(
        self, name: str, act: Callable[[Service, Any], Awaitable[Any]]
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        decode = decoder(METHODS[name][0])

        async def handle(data: bytes, context: Context) -> bytes:
            service = await self._admit(context)
            message = await _decoded(decode, data, context)
            return encode(await act(service, message))

        return handle

    async def _watch(self, data: bytes, context: Context) -> None:
        service = await self._admit(context)
        message: Watch = await _decoded(decoder(Watch), data, context)
        while not self._stopping.is_set():
            await context.write(encode(await service.report()))
            if message.interval_s <= 0:
                return
            try:
                interval = max(MIN_WATCH_INTERVAL_S, message.interval_s)
                await asyncio.wait_for(self._stopping.wait(), interval)
            except TimeoutError:
                pass

    async def _stream(self, requests: AsyncIterator[bytes], context: Context) -> None:
        service = await self._admit(context)
        task = asyncio.current_task()
        assert task is not None
        connection = Connection(service)
        reader = asyncio.create_task(_read_commands(requests, connection))
        reader.add_done_callback(lambda _: connection.wake.set())
        self._streams.add(task)
        self.connections += 1
        logs.event(logger, "connected", connections=self.connections)
        try:
            await context.send_initial_metadata(())  # the caller knows at once that it is connected
            stopping = asyncio.create_task(self._stopping.wait())
            stopping.add_done_callback(lambda _: connection.wake.set())
            try:
                await self._write_frames(connection, reader, context)
            finally:
                stopping.cancel()
        finally:
            reader.cancel()
            connection.close()
            self._streams.discard(task)
            self.connections -= 1
            logs.event(logger, "disconnected", connections=self.connections)

    async def _write_frames(self, connection: Connection, reader: asyncio.Task[str | None], context: Context) -> None:
        """Until the caller is done, sends what cannot be read, or the engine stops."""
        while True:
            await connection.wake.wait()
            frame = connection.gather()
            if frame is not None:
                await context.write(encode(frame))
            elif reader.done() and reader.result() is not None:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reader.result())
            elif connection.over or self._stopping.is_set():
                return

    # --- admission of calls -------------------------------------------------------------------------------------------

    async def _admit(self, context: Context) -> Service:
        """The service, for a caller that may use it. Otherwise the call ends here."""
        if self._token is not None:
            given = next((value for key, value in context.invocation_metadata() or () if key == "authorization"), "")
            if not hmac.compare_digest(str(given).encode(), f"Bearer {self._token}".encode()):
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the engine's token is missing or wrong")
        if self._service is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the model is loading")
        assert self._service is not None
        return self._service

    async def _set_health(self, status: int) -> None:
        for name in ("", SERVICE):
            await self._health.set(name, status)


async def _read_commands(requests: AsyncIterator[bytes], connection: Connection) -> str | None:
    """Feed the connection. Returns what is wrong when the bytes cannot be read at all."""
    decode = decoder(Command)
    try:
        async for data in requests:
            await connection.room()
            try:
                connection.receive(decode(data))
            except msgspec.ValidationError as error:
                try:
                    envelope = _envelope_decoder.decode(data)
                except msgspec.DecodeError:
                    return f"not a command: {error}"
                refusal = Error("invalid_request", f"the command is malformed: {error}")
                connection.refuse_by_name(envelope.id, envelope.type, envelope.subscription, refusal)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                return f"not a command: {error}"
        return None
    finally:
        connection.input_ended = True


async def _decoded(decode: Callable[[bytes], Any], data: bytes, context: Context) -> Any:
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the message is malformed: {error}")


async def _resolved(value: Any) -> Any:
    return value
