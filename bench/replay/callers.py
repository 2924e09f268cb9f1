"""Whose key each request of a trace is sent with."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.traces.request import TracedRequest

Keys = Mapping[str, str] | Sequence[str]
"""API keys by client, or to be used in turn."""


class KeysUnusable(ValueError):
    """The message says what is wrong with the keys and what they should be."""


def read_keys(path: Path) -> Keys:
    """Raises KeysUnusable."""
    expected = f'{path}: expected a JSON object {{"client": "key", ...}} or a list ["key", ...]'
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise KeysUnusable(f"{path}: {error.strerror}") from None
    except ValueError:
        raise KeysUnusable(f"{expected}; this is no JSON") from None
    keys = list(content.values()) if isinstance(content, dict) else content
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise KeysUnusable(expected)
    wrong = [tenant for tenant, key in by_tenant(content).items() if not re.fullmatch("[!-~]+", key)]
    if wrong:
        raise KeysUnusable(f"{path}: empty, or with spaces, line ends or letters beyond ASCII: {', '.join(wrong)}")
    return content


def by_tenant(keys: Keys) -> dict[str, str]:
    """Each key by the name of its tenant in the results, which never have the key itself."""
    if isinstance(keys, Mapping):
        return dict(keys)
    return {f"key-{place}": key for place, key in enumerate(keys, start=1)}


def assign(requests: Sequence[TracedRequest], keys: Keys) -> list[str]:
    """The tenant of each request, a name of ``by_tenant``.

    Keys by client: the client's. In turn: a client keeps the key that its first request got. Requests without a client
    take turns, all of a conversation together. Raises KeysUnusable for clients without a key.
    """
    if isinstance(keys, Mapping):
        missing = sorted({request.client for request in requests if request.client} - set(keys))
        if missing:
            raise KeysUnusable(f"no key for the clients {', '.join(missing)}: add them, or give a list of keys")
    names = list(by_tenant(keys))
    turns: dict[str, str] = {}
    tenants = []
    for number, request in enumerate(requests):
        if request.client and isinstance(keys, Mapping):
            tenants.append(request.client)
            continue
        whose = f"client {request.client}" if request.client else f"conversation {request.conversation}"
        if not request.client and not request.conversation:
            whose = f"request {number}"
        tenants.append(turns.setdefault(whose, names[len(turns) % len(names)]))
    return tenants
