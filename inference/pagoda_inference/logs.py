"""Structured logs: one JSON object a line, of names, numbers and times; never a prompt, never an answer.

Text reaches a log by accident through exceptions, whose messages may quote what they choked on. So a failure is logged
by its type and the places it passed through, without its message.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import TextIO

from pagoda_inference.protocol import Finished
from pagoda_inference.scheduling.sequence import Request

Field = str | int | float | bool | None | list[str]


class JsonFormatter(logging.Formatter):
    """``{"time": …, "level": …, "event": …, fields…}``. A record of another library has its text under ``message``."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", None)
        entry: dict[str, Field] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
        }
        if fields is None:
            entry |= {"event": "message", "logger": record.name, "message": record.getMessage()}
        else:
            entry |= {"event": record.getMessage(), **fields}
        if record.exc_info and record.exc_info[1] is not None:
            entry |= _describe(record.exc_info[1])
        return json.dumps(entry, ensure_ascii=False, default=str)


def configure(stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Send all logs of the process to ``stream`` (default: standard error) as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("pagoda_inference").setLevel(level)


def event(logger: logging.Logger, name: str, **fields: Field) -> None:
    """One thing that happened."""
    logger.info(name, extra={"fields": fields})


def failure(logger: logging.Logger, name: str, error: BaseException, **fields: Field) -> None:
    """One thing that went wrong: the exception's type and where it came from, not its message."""
    logger.error(name, extra={"fields": {**fields, **_describe(error)}})


def generation_finished(logger: logging.Logger, request: Request, finished: Finished) -> None:
    """The end of a generation, with its tokens and times."""
    usage = finished.usage
    event(
        logger,
        "generation_finished",
        id=request.id,
        account=request.account,
        request_class=request.request_class,
        reason=finished.reason,
        error=finished.error.code if finished.error else None,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        queued_s=round(usage.queued_s, 6),
        prefill_s=round(usage.prefill_s, 6),
        decode_s=round(usage.decode_s, 6),
        preemptions=usage.preemptions,
        blocks_freed=usage.blocks_freed,
    )


def _describe(error: BaseException) -> dict[str, Field]:
    chain: list[str] = []
    current: BaseException | None = error
    while current is not None and len(chain) < 5:
        chain.append(type(current).__name__)
        current = current.__cause__ or current.__context__
    innermost = error.__cause__ or error
    frames = traceback.extract_tb(innermost.__traceback__)[-8:]
    return {
        "error_type": " < ".join(chain),
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
