"""`manage.py doctor`: look over an installation and say what to do."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from pagoda.operations.checkup import check_up


class Command(BaseCommand):
    help = "Check database, migrations, Redis, model, engines, front end, disk and port. Exit status 1 if one fails."
    requires_system_checks: list[str] = []  # it must run where little else does

    def handle(self, *args: Any, **options: Any) -> None:
        failed = False
        for finding in check_up():
            mark = self.style.SUCCESS("ok  ") if finding.ok else self.style.ERROR("FAIL")
            self.stdout.write(f"{mark} {finding.name:<11} {finding.detail}")
            if not finding.ok:
                failed = True
                self.stdout.write(f"     {'':<11} -> {finding.advice}")
        if failed:
            sys.exit(1)
