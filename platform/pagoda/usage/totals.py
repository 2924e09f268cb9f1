"""A tenant's totals, together and by member, key, model and day, with what they cost. They equal the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pagoda.tenants.models import ApiKey, User
from pagoda.tenants.scoping import current_tenant_id
from pagoda.usage.pricing import Costs, PriceLists, add, as_text
from pagoda.usage.sums import NUMBERS, Row, midnight, summed

BY_KEYS = gettext_lazy("API keys")
IN_THE_CHAT = gettext_lazy("people, in the chat")
GONE = gettext_lazy("accounts and keys that are gone")
"""What has no member, or no key, among the members and among the keys."""


@dataclass(slots=True)
class Total:
    """name: of the member, key, …; for what has none, such as a key's requests among the members, what it is."""

    name: str
    generations: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    costs: Costs = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """As they count against a budget."""
        return self.prompt_tokens + self.output_tokens

    @property
    def cached_percent(self) -> int | None:
        """Of the prompt tokens."""
        return round(100 * self.cached_tokens / self.prompt_tokens) if self.prompt_tokens else None

    @property
    def cost(self) -> str:
        return as_text(self.costs)

    @property
    def numbers(self) -> Row:
        return {name: getattr(self, name) for name in NUMBERS}

    def count(self, numbers: Row, costs: Costs) -> None:
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + numbers[name])
        add(self.costs, costs)


@dataclass(frozen=True, slots=True)
class Totals:
    """Every record is in exactly one of the members, of the keys, of the models and of the days.

    The largest first; days in their order.
    """

    together: Total
    members: list[Total]
    keys: list[Total]
    models: list[Total]
    days: list[Total]


def totals(first: date, last: date, prices: PriceLists) -> Totals:
    """Of these days (UTC, both included), until now, for the tenant in scope."""
    until = min(midnight(last + timedelta(days=1)), timezone.now())  # one moment, whichever way it is summed
    together, by_model, by_day = Total(""), _Groups(), _Groups()
    for row in summed(midnight(first), until, "day", "model"):
        costs = _costs(prices, row["day"], row)
        together.count(row, costs)
        by_model.of(row["model"], row["model"]).count(row, costs)
        by_day.of(row["day"], row["day"].isoformat()).count(row, costs)
    by_member, by_key = _by_asker(first, last, until, prices)
    days = [by_day[day] for day in sorted(by_day)]
    return Totals(together, by_member.largest(), by_key.largest(), by_model.largest(), days)


def most(rows: list[Total], shown: int = 100) -> list[Total]:
    """The first ones, and the others as one: a page stays short, and its rows still add up."""
    if len(rows) <= shown:
        return rows
    others = Total(_("%(number)d others, in the file") % {"number": len(rows) - shown + 1})
    for row in rows[shown - 1 :]:
        others.count(row.numbers, row.costs)
    return [*rows[: shown - 1], others]


class _Groups(dict[Any, Total]):
    def of(self, group: Any, name: str) -> Total:
        return self.setdefault(group, Total(name))

    def largest(self) -> list[Total]:
        return sorted(self.values(), key=lambda total: (-total.tokens, total.name))


def _by_asker(first: date, last: date, until: datetime, prices: PriceLists) -> tuple[_Groups, _Groups]:
    rows = [
        (row, _costs(prices, begin, row))
        for begin, end in prices.periods(current_tenant_id(), first, last)
        for row in summed(midnight(begin), min(midnight(end + timedelta(days=1)), until), "user_id", "api_key_id")
    ]
    members = User.objects.in_bulk({row["user_id"] for row, _ in rows} - {None})
    keys = ApiKey.objects.in_bulk({row["api_key_id"] for row, _ in rows} - {None})
    by_member, by_key = _Groups(), _Groups()
    for row, costs in rows:
        member, key = members.get(row["user_id"]), keys.get(row["api_key_id"])
        member_name = member.email if member else str(BY_KEYS if key else GONE)
        key_name = str(key) if key else str(IN_THE_CHAT if member else GONE)
        by_member.of(row["user_id"] or member_name, member_name).count(row, costs)
        by_key.of(row["api_key_id"] or key_name, key_name).count(row, costs)
    return by_member, by_key


def _costs(prices: PriceLists, day: date, row: Row) -> Costs:
    return prices.cost(current_tenant_id(), day, *(row[name] for name in NUMBERS[1:]))
