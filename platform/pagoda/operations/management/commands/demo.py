"""`manage.py demo`: the demo accounts, made where there never were any."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from pagoda.engines.connections import sync_client
from pagoda.operations.checkup import DEFAULT_MODEL
from pagoda.operations.demo_accounts import ensure_demo_accounts
from pagoda.operations.location import current_location
from pagoda.operations.logins import logins
from pagoda_inference.client import EngineUnavailable

DELETED = "The demo accounts were deleted."


def served_model() -> str:
    """The model's id as the engine says it; by the settings where no engine answers."""
    for address in settings.PAGODA_ENGINES:
        try:
            with sync_client(address) as client:
                return client.models().id
        except EngineUnavailable:
            continue
    return settings.PAGODA_MODEL.rstrip("/").rpartition("/")[2] or DEFAULT_MODEL


class Command(BaseCommand):
    help = (
        "Print how to reach Pagoda and the demo logins and keys. They are made where there never were any; "
        "what was deleted stays deleted."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON, for scripts")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            credentials = ensure_demo_accounts(settings.PAGODA_HOME)
        except DatabaseError as error:
            raise CommandError(f"The database is not ready ({error}). Run `python manage.py migrate` first.") from None
        location = current_location(settings.PAGODA_HOME)
        if not options["json"]:
            self.stdout.write(f"Pagoda: {location.url}\n{logins(credentials) or DELETED}")
            return
        where = {"url": location.url, "ws_url": location.ws_url, "api_base": location.api_base, "model": served_model()}
        self.stdout.write(json.dumps(where | credentials, indent=2))
