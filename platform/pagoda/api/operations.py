"""A call of the API: authorised, its body read, carried out. Ninja's, but for where large bodies are read.

Parsing and checking megabytes takes a good part of a second, in which the loop would answer nobody. Large bodies are
read in threads, and of a tenant one at a time: its others wait, and hold up nobody else's.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja.operation import AsyncOperation
from ninja.params.models import BodyModel

from pagoda.api.body_bounds import SMALL_BYTES
from pagoda.api.errors import ApiError

R = TypeVar("R")

THREADS = 2
"""One is enough for a tenant; with a second the next one's body is not behind it."""

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="bodies")
_turns: WeakValueDictionary[uuid.UUID, asyncio.Lock] = WeakValueDictionary()


class Operation(AsyncOperation):
    """One method of one address."""

    async def run(self, request: HttpRequest, **path: Any) -> HttpResponseBase:  # type: ignore[override]
        """Answer the request, whatever happens."""
        refused = await self._run_checks(request)
        if refused:
            return refused
        try:
            answer = self.api.create_temporal_response(request)
            values = await self._read(request, lambda: self._get_values(request, path, answer))
            result = await self.view_func(request, **values)
            return self._result_to_response(request, result, answer)
        except Exception as error:
            return self.api.on_exception(request, error)

    async def _read(self, request: HttpRequest, get_values: Callable[[], R]) -> R:
        """Raises what ``get_values`` raises, and ApiError where a body is missing."""
        if not any(issubclass(model, BodyModel) for model in self.models):
            return get_values()
        if not request.body:
            raise ApiError("invalid_json", "The body is empty: send a JSON object.")
        if len(request.body) <= SMALL_BYTES:
            return get_values()
        return await apart(request.auth.tenant_id, get_values)  # type: ignore[attr-defined]


async def apart(tenant_id: uuid.UUID, work: Callable[[], R]) -> R:
    """``work`` for this tenant, off the event loop, after whatever of it is under way. Raises what it raises."""
    turn = _turns.get(tenant_id)
    if turn is None:
        turn = _turns[tenant_id] = asyncio.Lock()
    async with turn:
        return await asyncio.get_running_loop().run_in_executor(_threads, work)
