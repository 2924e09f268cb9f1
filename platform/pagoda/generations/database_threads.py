"""Database work of short calls, on threads of its own.

``database_sync_to_async`` has one thread for all sockets of a process, where a call to the API would queue behind
whatever they do. These threads are few, live as long as the process, and keep an SQLite connection open between calls;
a PostgreSQL connection goes back to its pool.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import connection, reset_queries

P = ParamSpec("P")
R = TypeVar("R")

THREADS = 4
"""SQLite writes one at a time, and PostgreSQL's pool is shared with the sockets: more would only wait elsewhere."""

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="database")


async def in_database(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """``function`` in one of the threads, under the caller's tenant scope. Raises what it raises.

    A caller that is cancelled meanwhile leaves it running: what it writes is written.
    """
    context = contextvars.copy_context()
    call = partial(context.run, partial(_run, function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_threads, call)


def _run(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    reset_queries()
    try:
        return function(*args, **kwargs)
    finally:
        if connection.vendor != "sqlite" or connection.errors_occurred:
            connection.close()
