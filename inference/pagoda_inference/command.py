"""``pagoda-inference serve`` and ``pagoda-inference prepare-model``."""

from __future__ import annotations

import argparse
import asyncio
import atexit
import logging
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from pagoda_inference import logs
from pagoda_inference.address import AddressError
from pagoda_inference.listening import AddressTaken
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.settings import Settings, SettingsError, described

USAGE_ERROR = 2
INTERRUPTED = 130


def main() -> None:
    """Carry out the command line, and end the process with its exit code."""
    _end(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """0 after a graceful stop, 1 when the engine failed, 2 with one sentence when it cannot begin.

    arguments: those of the command line without the program's name (None: this process's). Raises SystemExit where
    they are none.
    """
    options = vars(parser().parse_args(arguments))
    command = options.pop("command")
    try:
        settings = Settings.read(flags=options)
        return _serve(settings) if command == "serve" else _prepare_model(settings)
    except (SettingsError, AddressError, AddressTaken, ModelLoadError) as error:
        print(f"pagoda-inference: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED


def parser() -> argparse.ArgumentParser:
    """Every flag is a setting: absent, its environment variable decides."""
    root = argparse.ArgumentParser(
        prog="pagoda-inference", description="Pagoda's inference engine.", allow_abbrev=False
    )
    commands = root.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve a model", allow_abbrev=False)
    prepare = commands.add_parser("prepare-model", help="fetch and convert the model now", allow_abbrev=False)
    for field, setting in described().items():
        if setting.flag is None:
            continue
        help = f"{setting.help} [{setting.variable}]"
        for command in (serve, prepare) if field == "model" else (serve,):
            if field == "require_accounts":
                command.add_argument(
                    setting.flag, dest=field, action="store_const", const="1", default=argparse.SUPPRESS, help=help
                )
            else:
                command.add_argument(setting.flag, dest=field, default=argparse.SUPPRESS, metavar="VALUE", help=help)
    return root


def _serve(settings: Settings) -> int:
    from pagoda_inference.daemon import serve

    logs.configure()
    return 0 if asyncio.run(serve(settings)) else 1


def _prepare_model(settings: Settings) -> int:
    from pagoda_inference.model.loading import ECHO, find_model

    if settings.model == ECHO:
        print(f"{ECHO}: nothing to prepare")
        return 0
    place, model_id = find_model(settings.model, settings.home)
    print(f"{model_id}: {place}")
    return 0


def _end(code: int) -> None:
    """Leave at once when everything is written and closed: while the interpreter takes itself apart, libraries of the
    model print what they find left, behind the sentence that says what happened. A model that is still loading cannot
    be interrupted; nothing is closed under its thread.
    """
    if not any(thread.name == "engine" for thread in threading.enumerate()):
        atexit._run_exitfuncs()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)
