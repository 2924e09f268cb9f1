"""The admin's first page."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    return context
