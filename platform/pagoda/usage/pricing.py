"""What tokens cost: each day by the prices that held on it."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from datetime import date, timedelta
from decimal import Decimal

from pagoda.usage.models import Price

MILLION = Decimal(1_000_000)

Costs = dict[str, Decimal]
"""Amounts by currency. Nothing where no price held."""


class PriceLists:
    """The prices of any number of tenants, loaded once."""

    def __init__(self, prices: Iterable[Price]) -> None:
        self._lists: dict[uuid.UUID, list[Price]] = defaultdict(list)
        for price in sorted(prices, key=lambda price: price.effective_from):
            self._lists[price.tenant_id].append(price)

    def at(self, tenant_id: uuid.UUID, day: date) -> Price | None:
        """The tenant's price on a day (UTC)."""
        prices = self._lists.get(tenant_id, [])
        place = bisect_right(prices, day, key=lambda price: price.effective_from)
        return prices[place - 1] if place else None

    def periods(self, tenant_id: uuid.UUID, first: date, last: date) -> list[tuple[date, date]]:
        """These days, both included, cut where the tenant's prices change."""
        changes = [price.effective_from for price in self._lists.get(tenant_id, [])]
        begins = [first, *(day for day in changes if first < day <= last)]
        ends = [*(day - timedelta(days=1) for day in begins[1:]), last]
        return list(zip(begins, ends, strict=True))

    def cost(self, tenant_id: uuid.UUID, day: date, prompt: int, cached: int, output: int) -> Costs:
        """Exact, to the last digit. cached: a part of prompt, at its own price."""
        price = self.at(tenant_id, day)
        if price is None:
            return {}
        computed = (prompt - cached) * price.input + cached * price.cached_input + output * price.output
        return {price.currency: computed / MILLION}


def add(costs: Costs, more: Costs) -> None:
    """Into ``costs``."""
    for currency, amount in more.items():
        costs[currency] = costs.get(currency, Decimal(0)) + amount


def as_text(costs: Costs) -> str:
    """For people: ``1,234.50 USD``, with as many digits as a small amount needs; a dash where there is no price."""
    return ", ".join(f"{_digits(amount)} {currency}" for currency, amount in sorted(costs.items())) or "—"


def _digits(amount: Decimal) -> str:
    """At least two digits behind the point, and up to six of an amount below 100."""
    whole, fraction = f"{amount:,.{2 if amount >= 100 else 6}f}".split(".")
    return f"{whole}.{fraction.rstrip('0').ljust(2, '0')}"
