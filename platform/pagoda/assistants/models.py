"""Published prefixes, what the engines say of them, and the tenants' assistants."""

from __future__ import annotations

import hashlib

from django.conf import settings
from django.core.validators import MaxLengthValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import Tenant
from pagoda.tenants.scoping import TenantOwned
from pagoda.version_row import VersionRow

LONGEST_TEXT = 50_000
"""Characters of a system prompt."""


class PublishedPrefix(models.Model):
    """A system prompt that all tenants may begin their conversations with: the engines keep its KV once, for everybody.

    active: on the engines, and to be chosen. An assistant that uses one that was withdrawn keeps its text.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(_("name"), max_length=100, unique=True, help_text=_("What tenants' admins choose it by."))
    text = models.TextField(
        _("text"),
        validators=[MaxLengthValidator(LONGEST_TEXT)],
        help_text=_("A system prompt that every tenant can read. Conversations that have begun keep theirs."),
    )
    active = models.BooleanField(
        _("published"), default=True, help_text=_("Its blocks are computed at once and kept on every engine.")
    )
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="+",
        verbose_name=_("created by"),
    )
    changed = models.DateTimeField(_("changed"), default=timezone.now, editable=False)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="+",
        verbose_name=_("changed by"),
    )

    class Meta:
        verbose_name = _("published prefix")
        verbose_name_plural = _("published prefixes")
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def wire_id(self) -> str:
        """Its id on the engines: another text is another prefix there."""
        return f"{self.pk}.{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"


class PrefixVersion(VersionRow):
    """The number of the list of published prefixes; there is none before the first was made."""

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(id=1), name="prefix_version_single"),)


class Publication(models.Model):
    """What an engine last said of a prefix: the tokens and blocks it keeps, or why it does not."""

    prefix = models.ForeignKey(PublishedPrefix, on_delete=models.CASCADE, related_name="publications")
    engine = models.CharField(max_length=255)
    tokens = models.PositiveIntegerField()
    blocks = models.PositiveIntegerField()
    error = models.TextField(blank=True)

    class Meta:
        ordering = ("engine",)
        constraints = (models.UniqueConstraint(fields=["prefix", "engine"], name="publication_once"),)

    def __str__(self) -> str:
        return f"{self.prefix_id} · {self.engine}"


class Assistant(TenantOwned):
    """What a tenant's new conversations begin with: a published prefix, a text of its own, or the one and the other."""

    tenant = models.OneToOneField(
        Tenant, primary_key=True, on_delete=models.CASCADE, related_name="assistant", verbose_name=_("tenant")
    )
    prefix = models.ForeignKey(
        PublishedPrefix,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="assistants",
        verbose_name=_("published prefix"),
        help_text=_("Shared with other tenants that choose it: answers begin sooner."),
    )
    text = models.TextField(
        _("own text"),
        blank=True,
        validators=[MaxLengthValidator(LONGEST_TEXT)],
        help_text=_("What the assistant is told before a conversation; it follows the published text."),
    )
    changed = models.DateTimeField(_("changed"), default=timezone.now, editable=False)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="+",
        verbose_name=_("changed by"),
    )

    class Meta:
        verbose_name = _("assistant")
        verbose_name_plural = _("assistants")
        ordering = ("tenant__name",)
        default_manager_name = "objects"

    def __str__(self) -> str:
        return str(self.tenant)

    @property
    def system_text(self) -> str:
        """The system turn. The published text comes first and unchanged: its cached blocks are found by its tokens."""
        published = self.prefix.text if self.prefix is not None else ""
        return "\n\n".join(part for part in (published, self.text) if part.strip())


def system_text() -> str:
    """What a conversation that the tenant in scope begins now starts with; '' where it has no assistant."""
    assistant = Assistant.objects.select_related("prefix").first()
    return assistant.system_text if assistant is not None else ""
