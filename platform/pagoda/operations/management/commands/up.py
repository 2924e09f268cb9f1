"""`manage.py up`: all of Pagoda from one command."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from signal import SIG_IGN, SIGHUP, SIGINT, SIGTERM, signal
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections

from pagoda.operations.demo_accounts import ensure_demo_accounts, known_accounts
from pagoda.operations.installation_lock import AlreadyRunning, installation_lock
from pagoda.operations.location import Location, configured_location, remember_location
from pagoda.operations.logins import logins
from pagoda.operations.parent import ParentWatch
from pagoda.operations.parts import inference_command, parts, runs_own_engine
from pagoda.operations.ports import why_not_listening
from pagoda.operations.supervision import Supervisor
from pagoda.tenants.models import User

READY_TIMEOUT_S = 300.0
"""Time for the engine to load its model and the web tier to reach it: a large model takes minutes."""
DEATHS_BEFORE_GIVING_UP = 3
"""A part that dies this often before Pagoda was ever ready will not recover by itself."""
STOP_SIGNALS = (SIGINT, SIGTERM, SIGHUP)


class Command(BaseCommand):
    help = "Prepare the model and the database, then run engine, web and worker under one supervisor until stopped."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--stop-with-parent",
            action="store_true",
            help="stop when whoever started this (make) gives up",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.parent = ParentWatch() if options["stop_with_parent"] else None
        self.asked_to_stop = threading.Event()
        for number in STOP_SIGNALS:
            signal(number, self.stop_soon)
        try:
            with installation_lock(settings.PAGODA_HOME):
                self.run()
        except AlreadyRunning as error:
            raise CommandError(str(error)) from None

    def stop_soon(self, number: int, frame: FrameType | None) -> None:
        self.asked_to_stop.set()

    def run(self) -> None:
        if problem := why_not_listening(settings.PAGODA_HOST, settings.PAGODA_PORT):
            raise CommandError(problem)
        environment = os.environ | {"PAGODA_HOME": str(settings.PAGODA_HOME), "PAGODA_PORT": str(settings.PAGODA_PORT)}
        self.prepare(environment)
        if self.stopping():
            return
        location = configured_location()
        remember_location(settings.PAGODA_HOME, location)
        supervisor = Supervisor(settings.PAGODA_HOME, parts(), environment)
        try:
            supervisor.start()
            self.wait_until_ready(supervisor, location)
            if not self.stopping():
                self.announce(location)
            while not self.stopping():
                if supervisor.exit_status() is not None:
                    raise CommandError(f"The supervisor ended. See {supervisor.log_path('supervisor')}.")
                self.asked_to_stop.wait(0.5)
        finally:
            for number in STOP_SIGNALS:
                signal(number, SIG_IGN)  # stopping is under way: another Ctrl-C must not leave it half done
            self.say("Stopping.")
            supervisor.stop()

    # --- before the parts start -------------------------------------------------------------------------------------

    def prepare(self, environment: dict[str, str]) -> None:
        """Model and database side by side: the one waits for the network or the processor, the other for the disk."""
        model = subprocess.Popen([inference_command(), "prepare-model"], env=environment) if runs_own_engine() else None
        try:
            self.prepare_database()
            while model is not None and model.poll() is None and not self.stopping():
                self.asked_to_stop.wait(0.05)
        finally:
            if model is not None and model.poll() is None:
                model.terminate()
                model.wait()
        if model is not None and model.returncode and not self.stopping():
            raise CommandError("The model could not be prepared (see above).")

    def prepare_database(self) -> None:
        try:
            call_command("migrate", interactive=False, verbosity=0)
            # Only on a new installation: accounts that somebody deleted do not come back by themselves.
            if not User.objects.exists():
                ensure_demo_accounts(settings.PAGODA_HOME)
            self.logins = logins(known_accounts(settings.PAGODA_HOME))
        except DatabaseError as error:
            raise CommandError(f"The database is not ready: {str(error).strip()}. See DATABASE_URL.") from None
        finally:
            connections.close_all()

    # --- while they run ---------------------------------------------------------------------------------------------

    def wait_until_ready(self, supervisor: Supervisor, location: Location) -> None:
        """Until /readyz says yes. Raises CommandError with the end of a log when a part keeps dying or time is up."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        seen: dict[str, set[int]] = {}
        while not self.stopping():
            if self.is_ready(location):
                return
            for part in supervisor.states():
                pids = seen.setdefault(part.name, set())
                if part.pid:
                    pids.add(part.pid)
                if len(pids) >= DEATHS_BEFORE_GIVING_UP:
                    self.give_up(supervisor, part.name, "does not start")
            if supervisor.exit_status() is not None:
                self.give_up(supervisor, "supervisor", "ended")
            if time.monotonic() > deadline:
                self.give_up(supervisor, "engine", f"is not ready after {READY_TIMEOUT_S:.0f} s")
            self.asked_to_stop.wait(0.2)

    def is_ready(self, location: Location) -> bool:
        with suppress(OSError), location.open("/readyz", timeout_s=5):
            return True
        return False

    def give_up(self, supervisor: Supervisor, part: str, what: str) -> None:
        tail = supervisor.log_tail(part)
        raise CommandError(f"The {part} {what}. The end of {supervisor.log_path(part)}:\n{tail}")

    def stopping(self) -> bool:
        return self.asked_to_stop.is_set() or (self.parent is not None and self.parent.gave_up())

    def announce(self, location: Location) -> None:
        if self.logins:
            self.say(f"\nDemo logins (again: `python manage.py demo`):\n{self.logins}")
        self.say(f"  {'admin':<16} {location.url}/admin/\n  {'logs':<16} {settings.PAGODA_HOME / 'log'}\n")
        self.say(f"Pagoda is ready: {location.url}")

    def say(self, text: str) -> None:
        """At once, also into a pipe; a reader that went away must not keep us from stopping."""
        with suppress(BrokenPipeError):
            self.stdout.write(text)
            self.stdout.flush()
            sys.stdout.flush()
