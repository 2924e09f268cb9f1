"""`manage.py key_create`: a new API key for a tenant."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from pagoda.tenants.keys import KeyRefused, create_key
from pagoda.tenants.models import LIMITS, Scope, Tenant

UNITS = {"h": "hours", "d": "days"}


class Command(BaseCommand):
    help = "Make an API key. Its text is shown now and never again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG", help="short name of the tenant")
        parser.add_argument("--label", default="made on the command line", help="what the key is for")
        scopes = ", ".join(Scope.values)
        parser.add_argument("--scopes", metavar="LIST", help=f"of {scopes}, comma-separated; default: chat,batch")
        parser.add_argument("--expires", metavar="WHEN", help="12h, 90d, or a time (ISO 8601, UTC); default: never")
        for name in LIMITS:
            parser.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help="default: no limit")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        limits = {name: options[name] for name in LIMITS}
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if tenant is None:
            known = ", ".join(Tenant.objects.order_by("slug").values_list("slug", flat=True)) or "none"
            raise CommandError(f"There is no tenant {options['tenant']!r}. There are: {known}.")
        scopes = options["scopes"] and [scope.strip() for scope in options["scopes"].split(",") if scope.strip()]
        expires = options["expires"] and expiry(options["expires"])
        try:
            key, text = create_key(
                tenant.id, options["label"], created_by=None, scopes=scopes, expires=expires, **limits
            )
        except KeyRefused as refusal:
            raise CommandError(str(refusal)) from None
        if options["json"]:
            made = {"key": text, "label": key.label, "tenant": tenant.slug, "scopes": key.scopes}
            until = key.expires.isoformat() if key.expires else None
            self.stdout.write(json.dumps(made | {"expires": until} | limits))
        else:
            self.stdout.write(text)


def expiry(text: str) -> datetime:
    """From ``12h``, ``90d`` or a time. Raises CommandError."""
    if duration := re.fullmatch(r"([1-9]\d{0,5})([hd])", text):
        return timezone.now() + timedelta(**{UNITS[duration[2]]: int(duration[1])})
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--expires {text!r} is neither a duration like 12h or 90d nor a time (ISO 8601).") from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    if time <= timezone.now():
        raise CommandError(f"--expires {text!r} has passed.")
    return time
