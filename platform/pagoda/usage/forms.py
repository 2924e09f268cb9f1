"""Which days a page or a file of usage is about."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _


class DaysForm(forms.Form):
    """Two days (UTC), both included; without them the present month until today."""

    first = forms.DateField(label=_("From"), widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"))
    last = forms.DateField(label=_("To"), widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"))

    @classmethod
    def of(cls, query: QueryDict) -> DaysForm:
        first, last = cls.this_month()
        usual = {"first": first.isoformat(), "last": last.isoformat()}
        return cls(usual | {name: query[name] for name in usual if query.get(name)})

    @staticmethod
    def this_month() -> tuple[date, date]:
        """Its first day, and today (UTC)."""
        today = datetime.now(UTC).date()
        return today.replace(day=1), today

    def days(self) -> tuple[date, date]:
        """Of a valid form."""
        return self.cleaned_data["first"], self.cleaned_data["last"]

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        first, last = values.get("first"), values.get("last")
        if first and last and first > last:
            self.add_error("last", _("Not before the first day."))
        # The day after the last one has to exist.
        if last and last.year >= 9999:
            self.add_error("last", _("There is no such day."))
        return values
