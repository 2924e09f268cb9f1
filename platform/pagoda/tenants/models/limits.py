"""How much one tenant, or one key, may ask for: what both kinds of limits have in common."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

LARGEST_LIMIT = 10**15
"""A database's integer can hold it, and a sum of several too."""


_AT_LEAST_ONE = MinValueValidator(1)
_SMALL = (_AT_LEAST_ONE, MaxValueValidator(2_000_000_000))
_LARGE = (_AT_LEAST_ONE, MaxValueValidator(LARGEST_LIMIT))


class Limits(models.Model):
    """Four limits, each of which may be absent.

    requests_per_minute, tokens_per_minute: in any 60 seconds. concurrent_generations: at one moment. monthly_tokens:
    prompt and output in a calendar month (UTC).
    """

    requests_per_minute = models.PositiveIntegerField(
        _("requests per minute"), null=True, blank=True, validators=_SMALL, help_text=_("Empty: no limit.")
    )
    tokens_per_minute = models.PositiveIntegerField(
        _("tokens per minute"),
        null=True,
        blank=True,
        validators=_SMALL,
        help_text=_("Prompt and output. Empty: no limit."),
    )
    concurrent_generations = models.PositiveIntegerField(
        _("generations at a time"),
        null=True,
        blank=True,
        validators=_SMALL,
        help_text=_("Queued or running. Empty: no limit."),
    )
    monthly_tokens = models.PositiveBigIntegerField(
        _("tokens per month"),
        null=True,
        blank=True,
        validators=_LARGE,
        help_text=_("Prompt and output, in a calendar month (UTC). Empty: no limit."),
    )

    class Meta:
        abstract = True

    @property
    def is_limited(self) -> bool:
        return any(value is not None for value in self.limits().values())

    def limits(self) -> dict[str, int | None]:
        """Each limit by the name of its field."""
        return {name: getattr(self, name) for name in LIMITS}


def told_limits(row: Limits) -> str:
    """For people: ``requests per minute: 600 · …``; '' where there is none."""
    told = {row._meta.get_field(name): value for name, value in row.limits().items() if value is not None}
    return " · ".join(f"{getattr(field, 'verbose_name', '')}: {value:,}" for field, value in told.items())


LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_generations", "monthly_tokens")
"""The fields, in the order in which people read them."""
