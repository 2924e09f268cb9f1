"""The ledger and its sums, limits and what counts against them, prices."""

from pagoda.usage.models.ledger import UsageHour, UsageRecord
from pagoda.usage.models.limits import Meter, OpenHold, TenantLimits
from pagoda.usage.models.prices import Price
from pagoda.usage.models.sums import SummedUntil, UsageSum

__all__ = ["Meter", "OpenHold", "Price", "SummedUntil", "TenantLimits", "UsageHour", "UsageRecord", "UsageSum"]
