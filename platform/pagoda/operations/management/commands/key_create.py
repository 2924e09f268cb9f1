"""`manage.py key_create`: a new API key for a tenant."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from pagoda.tenants.keys import create_key
from pagoda.tenants.models import Tenant


class Command(BaseCommand):
    help = "Make an API key. Its text is shown now and never again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG", help="short name of the tenant")
        parser.add_argument("--label", default="made on the command line", help="what the key is for")
        parser.add_argument("--requests-per-minute", type=int, metavar="N", help="default: no limit")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        per_minute = options["requests_per_minute"]
        if per_minute is not None and per_minute < 1:
            raise CommandError("--requests-per-minute must be at least 1.")
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if tenant is None:
            known = ", ".join(Tenant.objects.order_by("slug").values_list("slug", flat=True)) or "none"
            raise CommandError(f"There is no tenant {options['tenant']!r}. There are: {known}.")
        label = options["label"]
        _, text = create_key(tenant.id, label, created_by=None, requests_per_minute=per_minute)
        if options["json"]:
            made = {"key": text, "label": label, "tenant": tenant.slug, "requests_per_minute": per_minute}
            self.stdout.write(json.dumps(made))
        else:
            self.stdout.write(text)
