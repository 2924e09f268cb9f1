"""The server that a trace is replayed against: a running one, or one started for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bench.daemon import Daemon
from bench.http_client import Connection, Refused
from bench.installation import Installation
from pagoda_inference.client import EngineUnavailable

LIST_TIMEOUT_S = 30.0
"""For the list of a server's models, which costs it nothing."""
MOST_SAID = 100
"""Characters of what a server said, in an error of one line."""
NO_API = (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, asyncio.LimitOverrunError)
"""What a connection raises, and what is raised where the other side speaks something else than the API."""


class ServerUnusable(RuntimeError):
    """The message says what the server lacks and what to do."""


@dataclass(frozen=True)
class Address:
    """Of a server's API. path: what comes before /v1."""

    host: str
    port: int
    tls: bool
    path: str = ""

    def connection(self, key: str) -> Connection:
        return Connection(self.port, key, host=self.host, tls=self.tls)


@dataclass(frozen=True)
class Server:
    """model: the one to ask. context: its most tokens of prompt and answer together."""

    address: Address
    model: str
    context: int


def parse_url(url: str) -> Address:
    """With or without /v1 at its end. Raises ServerUnusable."""
    parts = urlsplit(url)
    try:
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (KeyError, ValueError):
        raise ServerUnusable(f"{url!r} is no address of a server: expected http://HOST:PORT or https://HOST") from None
    if not parts.hostname:
        raise ServerUnusable(f"{url!r} names no host: expected http://HOST:PORT or https://HOST")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Address(parts.hostname, port, parts.scheme == "https", path)


def in_one_line(refusal: Refused, key: str) -> str:
    """The status and the beginning of what the server said with it: an error's code and message, or whatever it is.

    key: the API key that was sent, which no message shows.
    """
    said = refusal.content.decode(errors="replace")
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        said = code_and_message(json.loads(said)["error"])
    return f"{refusal.status} {shortened(said, key)}".rstrip()


def code_and_message(error: Mapping[str, Any]) -> str:
    """Of an error as the API has it."""
    return f"{error.get('code') or error.get('type')}: {error.get('message')}"


def shortened(said: str, key: str) -> str:
    """What a server said, in one line of printable characters, without the API key that was sent."""
    text = " ".join(said.replace(key, "…").split())
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= MOST_SAID else f"{text[:MOST_SAID]}…"


async def find_model(
    address: Address, key: str, name: str | None, *, tenant: str = "", timeout_s: float = LIST_TIMEOUT_S
) -> Server:
    """The model of that name, or the first that the server has. tenant: whose key it is. Raises ServerUnusable."""
    where = f"{address.host}:{address.port}"
    try:
        async with asyncio.timeout(timeout_s), address.connection(key) as connection:
            models = (await connection.get_json(f"{address.path}/v1/models"))["data"]
        contexts = {str(model["id"]): int(model["context_length"]) for model in models}
    except TimeoutError:
        raise ServerUnusable(f"{where} did not list its models within {timeout_s:g} s") from None
    except EOFError:
        raise ServerUnusable(f"{where} closed the connection before it had listed its models") from None
    except OSError as error:
        raise ServerUnusable(f"{where} cannot be reached: {error}") from None
    except Refused as refusal:
        asked = f"{where}{address.path} did not list its models{tenant and f' for {tenant}'}"
        raise ServerUnusable(f"{asked}: {in_one_line(refusal, key)}") from None
    except NO_API:
        raise ServerUnusable(f"{where} lists its models in another way: it is no Pagoda") from None
    if not contexts:
        raise ServerUnusable(f"{where} has no model that can be reached: start its engine")
    model = name or next(iter(contexts))
    if model not in contexts:
        raise ServerUnusable(f"{where} has no model {model!r}, but {', '.join(contexts)}")
    return Server(address, model, contexts[model])


@asynccontextmanager
async def own_installation(
    tenants: Sequence[str], model: str | None, engine_options: str
) -> AsyncIterator[tuple[Server, dict[str, str]]]:
    """Engine, web process and worker on this machine, with these tenants and a key of each.

    model: as ``pagoda-inference serve --model``; engine_options: more of its options.
    Raises ServerUnusable where a part does not start.
    """
    try:
        flags = [*(["--model", model] if model else []), *shlex.split(engine_options)]
    except ValueError as error:
        raise ServerUnusable(f"--engine {engine_options}: {error}") from None
    async with AsyncExitStack() as stack:
        try:
            daemon = await stack.enter_async_context(Daemon(*flags))
            installation = await stack.enter_async_context(Installation(str(daemon.client.address)))
            keys = await installation.make_tenants(tenants)
        except (RuntimeError, TimeoutError, EngineUnavailable) as error:
            raise ServerUnusable(f"the installation did not start: {error}") from error
        address = Address("127.0.0.1", installation.port, tls=False)
        yield await find_model(address, next(iter(keys.values())), None), keys
