"""What `manage.py doctor` looks at. Every finding says what to do about it."""

from __future__ import annotations

import shutil
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from pagoda.engines.connections import sync_client
from pagoda.operations.location import current_location
from pagoda.operations.ports import why_not_listening
from pagoda_inference.client import EngineUnavailable

ENOUGH_DISK = 2 * 1024**3
"""Bytes: a model, its conversion and some months of conversations."""
DEFAULT_MODEL = "SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class Finding:
    """``advice`` is empty where all is well."""

    name: str
    detail: str
    advice: str = ""

    @property
    def ok(self) -> bool:
        return not self.advice


def check_up() -> Iterator[Finding]:
    """One finding after the other; a check that fails unexpectedly is a finding too."""
    for check in CHECKS:
        try:
            yield check()
        except Exception as error:
            yield Finding(
                check.__name__, f"{type(error).__name__}: {error}", "This check failed itself; see the above."
            )


def home() -> Finding:
    path = settings.PAGODA_HOME
    probe = path / ".writable"
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        return Finding("home", f"{path}: {error.strerror}", "Give yourself write access to it, or set PAGODA_HOME.")
    return Finding("home", str(path))


def disk() -> Finding:
    free = shutil.disk_usage(settings.PAGODA_HOME).free
    text = f"{free / 1024**3:.1f} GiB free"
    if free < ENOUGH_DISK:
        return Finding("disk", text, f"Free some: Pagoda wants {ENOUGH_DISK // 1024**3} GiB under PAGODA_HOME.")
    return Finding("disk", text)


def database() -> Finding:
    engine = connection.vendor
    try:
        connection.ensure_connection()
    except DatabaseError as error:
        reason = str(error).strip().splitlines()[0]
        return Finding("database", f"{engine}: {reason}", "Start the database, or correct DATABASE_URL.")
    return Finding("database", engine)


def migrations() -> Finding:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        return Finding("migrations", f"{len(missing)} not applied", "Run `python manage.py migrate` (`make up` does).")
    return Finding("migrations", "all applied")


def redis() -> Finding:
    if not settings.REDIS_URL:
        return Finding("redis", "not used (REDIS_URL is not set): one web process, broker on the file system")
    from redis import Redis, RedisError

    try:
        Redis.from_url(settings.REDIS_URL, socket_connect_timeout=3, socket_timeout=3).ping()
    except (RedisError, ValueError) as error:
        return Finding("redis", str(error), "Start Redis, or correct REDIS_URL.")
    return Finding("redis", "answers")


def model() -> Finding:
    name = settings.PAGODA_MODEL or str(settings.PAGODA_HOME / "models" / DEFAULT_MODEL)
    if name == "echo":
        return Finding("model", "echo: no weights needed")
    path = Path(name)
    if (path / "config.json").is_file():
        return Finding("model", str(path))
    if settings.PAGODA_MODEL and not path.is_absolute() and not path.exists():
        return Finding("model", f"{name}: a model hub's id, loaded by the engine when it starts")
    advice = "Correct PAGODA_MODEL." if settings.PAGODA_MODEL else "Run `make model` (`make up` does)."
    return Finding("model", f"{path} holds no model", advice)


def engines() -> Finding:
    reached = []
    for address in settings.PAGODA_ENGINES:
        try:
            with sync_client(address) as client:
                info = client.models()
        except EngineUnavailable as error:
            what = str(error).partition("; last error")[0]
            return Finding("engines", what, "Start it (`make up`), or correct PAGODA_ENGINES.")
        reached.append(f"{info.id} with {info.total_blocks} blocks of {info.block_size} tokens")
    return Finding("engines", "; ".join(reached))


def frontend() -> Finding:
    manifest = settings.PAGODA_FRONTEND_DIST / "manifest.json"
    if not manifest.is_file():
        return Finding("frontend", f"{settings.PAGODA_FRONTEND_DIST} holds no build", "Run `make frontend`.")
    return Finding("frontend", "built")


def web() -> Finding:
    """Either Pagoda answers on its port, or the port is free for it."""
    location = current_location(settings.PAGODA_HOME)
    try:
        with location.open("/healthz", timeout_s=3):
            return Finding("web", f"answers at {location.url}")
    except urllib.error.HTTPError as error:
        return Finding("web", f"{location.url} answers {error.code}", "Another program has the port: see PAGODA_PORT.")
    except OSError:
        problem = why_not_listening(settings.PAGODA_HOST, settings.PAGODA_PORT)
    if problem:
        return Finding("web", problem, "Stop that program, or set PAGODA_PORT.")
    return Finding("web", f"not running; port {settings.PAGODA_PORT} is free")


CHECKS: tuple[Callable[[], Finding], ...] = (
    home, disk, database, migrations, redis, model, engines, frontend, web,
)  # fmt: skip
