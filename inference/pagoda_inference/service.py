"""What each verb does, on the event loop: between connections on one side and the engine's thread on the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pagoda_inference import logs
from pagoda_inference.decoding.grammars import Grammars
from pagoda_inference.engine import Engine
from pagoda_inference.generation import Generation
from pagoda_inference.generation_log import GenerationLog, Key
from pagoda_inference.generation_store import AccountLogsFull, GenerationStore
from pagoda_inference.model.tokenizer import ChatTokenizer
from pagoda_inference.prefixes import Resolved, resolve
from pagoda_inference.preparation import (
    InvalidCommand,
    check_names,
    encode_messages,
    prepare,
    prompt_characters,
)
from pagoda_inference.protocol import (
    AccountsSet,
    Acknowledge,
    Attach,
    Cancel,
    Detokenize,
    Error,
    Finished,
    Generate,
    ModelInfo,
    PoolReport,
    Publish,
    Published,
    Purge,
    Purged,
    SetAccounts,
    Text,
    Tokenize,
    Tokens,
    Usage,
)

logger = logging.getLogger(__name__)
A = TypeVar("A")
T = TypeVar("T")

INLINE_CHARACTERS = 4096
"""A prompt up to this length is tokenised at once (about 1 ms); a longer one in a thread, so that it delays nobody."""


class Service:
    """The engine as its callers see it. Every method belongs to the event loop."""

    def __init__(self, engine: Engine, tokenizer: ChatTokenizer, info: ModelInfo, store: GenerationStore) -> None:
        self.engine = engine
        self.info = info
        self.store = store
        self.stopping = False
        self._tokenizer = tokenizer
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="tokenise")
        self._grammars = Grammars(tokenizer.grammar_tokenizer, info.vocabulary_size)
        self._grammar_thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        """One: whoever has large grammars compiled delays nobody but those who want others compiled."""
        self._preparing: dict[Key, asyncio.Task[None]] = {}

    # --- generations --------------------------------------------------------------------------------------------------

    def generate(self, command: Generate) -> GenerationLog:
        """The log of a new generation, or of the one that has this id and account. Raises InvalidCommand.

        What is found wrong later (the prompt, the queue) refuses the log.
        """
        check_names(command)
        key = (command.account, command.id)
        known = self.store.find(key)
        if known is not None:
            return known
        if self.stopping:
            raise InvalidCommand("engine_stopping", "the engine is stopping: send the request again when it is back")
        try:
            log = self.store.create(key, cancel_unheard=command.on_disconnect == "cancel")
        except AccountLogsFull:
            raise InvalidCommand(
                "queue_full",
                f"the account's running generations hold more than {self.store.max_bytes} bytes of unacknowledged "
                "events: acknowledge them or wait",
                max_bytes=self.store.max_bytes,
            ) from None
        grammar = command.sampling.grammar
        if grammar is not None and not self._grammars.known(grammar):
            self._preparing[key] = asyncio.create_task(self._begin_in_thread(command, log, self._grammar_thread))
        elif prompt_characters(command) > INLINE_CHARACTERS:
            self._preparing[key] = asyncio.create_task(self._begin_in_thread(command, log, self._threads))
        else:
            self._begin(command, log)
        return log

    def attach(self, command: Attach) -> GenerationLog:
        """The log of a generation that has or will have events after ``after_seq``.

        Raises InvalidCommand for an unknown one and for another account's alike.
        """
        log = self._find(command.account, command.id)
        if not 0 <= command.after_seq <= log.last_seq:
            raise InvalidCommand("invalid_request", f"after_seq must be in 0..{log.last_seq}, not {command.after_seq}")
        if log.ended and command.after_seq == log.last_seq:
            raise InvalidCommand("not_found", f"the generation ended with seq {log.last_seq}: nothing follows")
        return log

    def acknowledge(self, command: Acknowledge) -> None:
        """Forget events. Raises InvalidCommand for an unknown generation."""
        self.store.acknowledge(self._find(command.account, command.id), command.seq)

    def cancel(self, command: Cancel) -> None:
        """End a generation; an ended one stays as it is. Raises InvalidCommand for an unknown one."""
        self._cancel(self._find(command.account, command.id))

    def left(self, log: GenerationLog) -> None:
        """A reader of this log is gone."""
        if log.cancel_unheard and not log.cursors and not log.ended:
            self._cancel(log)

    def _find(self, account: str, id: str) -> GenerationLog:
        log = self.store.find((account, id))
        if log is None:
            raise InvalidCommand("not_found", "there is no such generation, or everything of it was acknowledged")
        return log

    def _cancel(self, log: GenerationLog) -> None:
        if log.ended:
            return
        if log.key in self._preparing:
            finished = Finished(log.key[1], log.last_seq + 1, "cancelled", Usage(0, 0, 0))
            self.store.append(log, finished)
        else:
            self.engine.cancel(log.key)

    def _begin(self, command: Generate, log: GenerationLog) -> None:
        try:
            generation = self._prepare(command, log)
        except Exception as error:
            self._refuse(log, error)
            return
        self.engine.submit(generation)

    async def _begin_in_thread(self, command: Generate, log: GenerationLog, threads: ThreadPoolExecutor) -> None:
        try:
            loop = asyncio.get_running_loop()
            generation = await loop.run_in_executor(threads, self._prepare, command, log)
        except Exception as error:
            if not log.ended:
                self._refuse(log, error)
            return
        finally:
            del self._preparing[log.key]
        if self.stopping and not log.ended:
            self.store.refuse(log, Error("engine_stopping", "the engine is stopping: send the request again"))
        elif not log.ended:
            self.engine.submit(generation)

    def _prepare(self, command: Generate, log: GenerationLog) -> Generation:
        return prepare(
            command,
            log,
            self._tokenizer,
            context_length=self.info.context_length,
            vocabulary_size=self.info.vocabulary_size,
            grammars=self._grammars,
        )

    def _refuse(self, log: GenerationLog, error: Exception) -> None:
        if isinstance(error, InvalidCommand):
            self.store.refuse(log, error.error)
            return
        account, id = log.key
        logs.failure(logger, "preparation_failed", error, id=id, account=account)
        self.store.refuse(log, Error("invalid_request", "the prompt could not be tokenised"))

    # --- everything else ----------------------------------------------------------------------------------------------

    async def set_accounts(self, message: SetAccounts) -> AccountsSet:
        """Replace all accounts."""
        return await asyncio.wrap_future(self.engine.set_accounts(message))

    async def publish(self, message: Publish) -> Published:
        """Replace all published prefixes; those that cannot be tokenised are refused one by one."""
        resolved = await asyncio.get_running_loop().run_in_executor(self._threads, self._resolve, message)
        return resolved.merged(await asyncio.wrap_future(self.engine.publish(resolved.publish)))

    async def purge(self, message: Purge) -> Purged:
        """Drop what was cached for conversations that are gone."""
        return await asyncio.wrap_future(self.engine.purge(message))

    async def report(self) -> PoolReport:
        """The pool now."""
        return await asyncio.wrap_future(self.engine.report())

    async def tokenize(self, message: Tokenize) -> Tokens:
        """Tokens of a text or of templated messages."""
        try:
            return Tokens(await self._in_thread(prompt_characters(message), self._tokenize, message))
        except InvalidCommand as error:
            return Tokens(error=error.error)

    async def detokenize(self, message: Detokenize) -> Text:
        """Text of tokens."""
        size = self.info.vocabulary_size
        if not all(0 <= token < size for token in message.token_ids):
            return Text(error=Error("invalid_request", f"token_ids must be in 0..{size - 1}"))
        return Text(await self._in_thread(len(message.token_ids), self._tokenizer.decode, message.token_ids))

    def stop(self) -> None:
        """Refuse new generations and end those that run."""
        self.stopping = True
        self.engine.stop()

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._grammar_thread.shutdown(wait=False, cancel_futures=True)
        self._grammars.close()

    def _resolve(self, message: Publish) -> Resolved:
        info = self.info
        return resolve(
            message, self._tokenizer, context_length=info.context_length, vocabulary_size=info.vocabulary_size
        )

    def _tokenize(self, message: Tokenize) -> tuple[int, ...]:
        if (message.text is None) == (message.messages is None):
            raise InvalidCommand("invalid_request", "exactly one of text and messages must be given")
        if message.messages is not None:
            return tuple(encode_messages(message.messages, self._tokenizer))
        return tuple(self._tokenizer.encode(message.text or ""))

    async def _in_thread(self, size: int, function: Callable[[A], T], argument: A) -> T:
        if size <= INLINE_CHARACTERS:
            return function(argument)
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, argument)
