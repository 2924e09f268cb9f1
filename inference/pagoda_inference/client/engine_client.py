"""The asyncio client: one connection, any number of subscriptions, reconnecting by itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import msgspec

from pagoda_inference.address import Address
from pagoda_inference.client.channel import (
    OPTIONS,
    PUBLISH_TIMEOUT_S,
    UNARY_TIMEOUT_S,
    credentials,
    metadata,
    translate,
)
from pagoda_inference.client.errors import EngineRefused, EngineUnavailable
from pagoda_inference.client.packing import packed
from pagoda_inference.client.subscription import Subscription
from pagoda_inference.protocol import (
    METHODS,
    AccountsSet,
    Acknowledge,
    Attach,
    Cancel,
    ChatMessage,
    Command,
    Detach,
    Detokenize,
    Frame,
    Generate,
    GetModels,
    ModelInfo,
    PoolReport,
    Publish,
    Published,
    Purge,
    Purged,
    Refused,
    SetAccounts,
    Text,
    Tokenize,
    Tokens,
    Watch,
    decoder,
    encode,
    method_path,
)

logger = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.05
MAX_BACKOFF_S = 1.0

Hook = Callable[["EngineClient", ModelInfo], Awaitable[None]]


class EngineClient:
    """A connection to one engine, on one event loop.

    It connects in the background from ``connect`` (or ``async with``) on, and again whenever the connection breaks.
    While there is none, everything fails at once with EngineUnavailable; ``connect`` waits for one.

    address: see ``address.Address``. token: the engine's PAGODA_ENGINE_TOKEN.
    """

    def __init__(self, address: str, token: str | None = None) -> None:
        self.address = Address.parse(address)
        self.instance: str | None = None
        """Of the engine last connected to."""
        self.on_connect: list[Hook] = []
        """Awaited after each connection, before any generation's command is sent. A hook that raises ends the
        connection, and it is tried again."""
        self._metadata = metadata(token)
        self._channel: grpc.aio.Channel | None = None
        self._info: ModelInfo | None = None  # of the engine connected to now
        self._failure: Exception = EngineUnavailable(f"not connected to the engine at {address} yet")
        self._changed = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._outbox: deque[tuple[bytes, asyncio.Future[None] | None]] = deque()
        self._outgoing = asyncio.Event()
        self._subscriptions: dict[int, Subscription] = {}
        self._last_subscription = 0

    # --- the connection -----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> EngineClient:
        self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def connected(self) -> bool:
        """Whether commands can be sent now."""
        return self._info is not None

    async def connect(self, timeout: float = 10.0) -> ModelInfo:  # noqa: ASYNC109 - it also chooses the reason
        """Wait until the engine is ready, ``timeout`` seconds at most.

        Raises EngineUnavailable with the last reason, or EngineRefused at once when the token is wrong.
        """
        self._start()
        try:
            async with asyncio.timeout(timeout):
                while self._info is None:
                    if isinstance(self._failure, EngineRefused):
                        raise self._failure
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise self._failure from None
        return self._info

    async def close(self) -> None:
        """End the connection. Subscriptions end with EngineUnavailable."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await runner
        self._disconnected(EngineUnavailable("the client was closed"))

    # --- generations --------------------------------------------------------------------------------------------------

    def generate(self, command: Generate) -> Subscription:
        """Start a generation and subscribe to it. The same id and account again subscribes to the running one."""
        subscription, number = self._subscribe(command.id, command.account, 0)
        if number:
            self._ask(subscription, number, msgspec.structs.replace(command, subscription=number))
        return subscription

    def attach(self, id: str, account: str, after_seq: int = 0) -> Subscription:
        """Subscribe to the events after ``after_seq``."""
        subscription, number = self._subscribe(id, account, after_seq)
        if number:
            self._ask(subscription, number, Attach(id, account, after_seq, number))
        return subscription

    async def acknowledge(self, id: str, account: str, seq: int) -> None:
        """Let the engine forget the events up to ``seq``. Returns when that is sent."""
        await self._sent(Acknowledge(id, account, seq))

    async def cancel(self, id: str, account: str) -> None:
        """Stop a generation. Returns when that is sent; the receipt is its Finished event."""
        await self._sent(Cancel(id, account))

    # --- everything else ----------------------------------------------------------------------------------------------

    async def set_accounts(self, message: SetAccounts) -> AccountsSet:
        """Replace the engine's accounts. A list it cannot take comes back as ``error``."""
        answer: AccountsSet = await self._unary("SetAccounts", message)
        return answer

    async def publish(self, message: Publish) -> Published:
        """Replace the engine's published prefixes, and wait until they are computed."""
        answer: Published = await self._unary("Publish", message, PUBLISH_TIMEOUT_S)
        return answer

    async def purge(self, message: Purge) -> Purged:
        """Drop what is cached for conversations alone that are gone. Idempotent."""
        answer: Purged = await self._unary("Purge", message)
        return answer

    async def models(self) -> ModelInfo:
        """What the engine serves."""
        answer: ModelInfo = await self._unary("GetModels", GetModels())
        return answer

    async def tokenize(self, text: str | None = None, messages: tuple[ChatMessage, ...] | None = None) -> Tokens:
        """Tokens of a text, or of messages in the model's template. Raises EngineRefused."""
        answer: Tokens = await self._unary("Tokenize", Tokenize(text, messages))
        if answer.error is not None:
            raise EngineRefused(answer.error)
        return answer

    async def detokenize(self, token_ids: tuple[int, ...]) -> Text:
        """Text of tokens. Raises EngineRefused."""
        answer: Text = await self._unary("Detokenize", Detokenize(token_ids))
        if answer.error is not None:
            raise EngineRefused(answer.error)
        return answer

    async def watch(self, interval_s: float = 1.0) -> AsyncIterator[PoolReport]:
        """Pool reports every ``interval_s`` seconds (0: one). Raises EngineUnavailable when the connection breaks."""
        decode = decoder(PoolReport)
        call = self._open_channel().unary_stream(method_path("Watch"))(
            encode(Watch(interval_s)), metadata=self._metadata
        )
        try:
            with self._translated():
                async for data in call:
                    yield decode(data)
        finally:
            call.cancel()

    # --- inside: sending ----------------------------------------------------------------------------------------------

    def _subscribe(self, id: str, account: str, after_seq: int) -> tuple[Subscription, int]:
        """A subscription and its number; without a connection it has failed already and the number is 0."""
        self._last_subscription += 1
        number = self._last_subscription
        subscription = Subscription(id, account, after_seq, lambda _: self._leave(number))
        if self._info is None:
            subscription.end(self._failure)
            return subscription, 0
        self._subscriptions[number] = subscription
        return subscription, number

    def _leave(self, number: int) -> None:
        if self._subscriptions.pop(number, None) is not None and self._info is not None:
            self._send(Detach(number))

    def _ask(self, subscription: Subscription, number: int, command: Command) -> None:
        """Send what a subscription begins with; what cannot be sent ends it, and concerns nobody else."""
        try:
            self._send(command)
        except EngineRefused as refusal:
            del self._subscriptions[number]
            subscription.end(refusal)

    def _send(self, command: Command, sent: asyncio.Future[None] | None = None) -> None:
        """Raises EngineRefused for a command that no message can carry."""
        self._outbox.append((packed(command), sent))
        self._outgoing.set()

    async def _sent(self, command: Command) -> None:
        if self._info is None:
            raise self._failure
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._send(command, sent)
        await sent

    def _open_channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise self._failure
        return self._channel

    async def _unary(self, name: str, message: Any, timeout_s: float = UNARY_TIMEOUT_S) -> Any:
        call = self._open_channel().unary_unary(method_path(name))
        with self._translated():
            data = await call(encode(message), timeout=timeout_s, metadata=self._metadata)
        return decoder(METHODS[name][1])(data)

    @contextlib.contextmanager
    def _translated(self) -> Any:
        """gRPC's errors as ours. A call whose channel was closed looks cancelled, though nobody cancelled the task."""
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise translate(error, self.address) from None
        except (grpc.aio.UsageError, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise EngineUnavailable(f"the connection to the engine at {self.address} was closed") from None

    # --- inside: connecting -------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())

    async def _run(self) -> None:
        backoff = FIRST_BACKOFF_S
        while True:
            try:
                await self._session()
            except (EngineUnavailable, EngineRefused) as error:
                failure: Exception = error
            except Exception as error:
                logger.exception("connecting to the engine failed")
                failure = EngineUnavailable(f"connecting to the engine at {self.address} failed: {error}")
            if self._info is not None:
                backoff = FIRST_BACKOFF_S
            self._disconnected(failure)
            await asyncio.sleep(backoff * random.uniform(0.8, 1.2))
            backoff = min(2 * backoff, MAX_BACKOFF_S)

    async def _session(self) -> None:
        """One connection, from its beginning to its end, which is an exception."""
        secure = credentials(self.address)
        target = self.address.target
        if secure is None:
            channel = grpc.aio.insecure_channel(target, OPTIONS)
        else:
            channel = grpc.aio.secure_channel(target, secure, OPTIONS)
        self._channel = channel
        writer: asyncio.Task[None] | None = None
        try:
            with self._translated():
                info = await self.models()
                for hook in self.on_connect:
                    await hook(self, info)
                stream = channel.stream_stream(method_path("Stream"))(metadata=self._metadata)
                await stream.wait_for_connection()
                writer = asyncio.create_task(self._write(stream))
                self.instance, self._info = info.instance, info
                self._changed.set()
                await self._read(stream)
        finally:
            if writer is not None:
                writer.cancel()
            self._channel = None
            await channel.close()

    async def _read(self, stream: Any) -> None:
        decode = decoder(Frame)
        while (data := await stream.read()) is not grpc.aio.EOF:
            frame: Frame = decode(data)
            for delivery in frame.deliveries:
                subscription = self._subscriptions.get(delivery.subscription)
                if subscription is None:
                    self._note_refusals(delivery.replies)
                    continue
                subscription.receive(delivery.replies)
                if subscription.ended:
                    del self._subscriptions[delivery.subscription]
        code, details = await stream.code(), await stream.details()
        raise EngineUnavailable(f"the engine at {self.address} ended the connection: {details or code.name}")

    def _note_refusals(self, replies: tuple[Any, ...]) -> None:
        """A cancel or an acknowledgement came too late: nobody waits for that, but it may explain something."""
        for reply in replies:
            if isinstance(reply, Refused):
                logger.debug("%s of %s refused: %s", reply.command, reply.id, reply.error.code)

    async def _write(self, stream: Any) -> None:
        try:
            while True:
                await self._outgoing.wait()
                self._outgoing.clear()
                while self._outbox:
                    message, sent = self._outbox.popleft()
                    try:
                        await stream.write(message)
                    except BaseException:
                        _tell(sent, EngineUnavailable(f"the connection to the engine at {self.address} broke"))
                        raise
                    _tell(sent)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            return  # the reading side reports it

    def _disconnected(self, failure: Exception) -> None:
        self._failure = failure
        self._info = None
        outbox, self._outbox = self._outbox, deque()
        for _, sent in outbox:
            _tell(sent, failure)
        subscriptions, self._subscriptions = self._subscriptions, {}
        for subscription in subscriptions.values():
            subscription.end(failure)
        self._changed.set()


def _tell(sent: asyncio.Future[None] | None, failure: Exception | None = None) -> None:
    """Tell whoever waits for a message to be sent, if anybody does, that it was, or why not."""
    if sent is None or sent.done():
        return
    if failure is None:
        sent.set_result(None)
    else:
        sent.set_exception(failure)
