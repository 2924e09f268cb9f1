"""What gives somebody or something access to a tenant: invitations and API keys."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models.limits import Limits
from pagoda.tenants.models.people import Role, Tenant
from pagoda.tenants.scoping import TenantOwned


class Invitation(TenantOwned):
    """A link that lets one person into a tenant, once, until it expires. Only the hash of its token is stored."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField(_("e-mail address"))
    role = models.CharField(_("role"), max_length=10, choices=Role.choices, default=Role.MEMBER)
    token_hash = models.CharField(max_length=64, unique=True, editable=False)
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", verbose_name=_("invited by")
    )
    expires = models.DateTimeField(_("expires"))
    accepted = models.DateTimeField(_("accepted"), null=True, blank=True, editable=False)
    revoked = models.DateTimeField(_("revoked"), null=True, blank=True, editable=False)
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("invitation")
        verbose_name_plural = _("invitations")
        ordering = ("-created",)
        default_manager_name = "objects"

    def __str__(self) -> str:
        return f"{self.email} · {self.get_role_display()}"

    @property
    def is_open(self) -> bool:
        return self.accepted is None and self.revoked is None and self.expires > timezone.now()


class Scope(models.TextChoices):
    """What a key may be used for."""

    CHAT = "chat", _("chat: ask the model")
    BATCH = "batch", _("batch: files and batches")
    ADMIN = "admin", _("admin: fetch the tenant's usage")


def usual_scopes() -> list[str]:
    """Of a key that was made without a choice: everything but administration."""
    return [Scope.CHAT.value, Scope.BATCH.value]


class ApiKey(Limits, TenantOwned):
    """A key for apps. The text is shown once, when it is made; the database keeps its prefix and its hash.

    scopes: values of Scope. replaced_by: the key that took this one's place; from then on ``expires`` is the end of
    their overlap. The limits are the key's own, beside those of its tenant.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="api_keys")
    label = models.CharField(_("label"), max_length=100)
    prefix = models.CharField(_("prefix"), max_length=16, unique=True, editable=False)
    hash = models.CharField(max_length=64, unique=True, editable=False)
    scopes = models.JSONField(_("scopes"), default=usual_scopes)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", verbose_name=_("made by")
    )
    expires = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked = models.DateTimeField(_("revoked"), null=True, blank=True, editable=False)
    replaced_by = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="+",
        verbose_name=_("replaced by"),
    )
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        ordering = ("-created",)
        default_manager_name = "objects"

    def __str__(self) -> str:
        return f"{self.label} (pgd_{self.prefix}…)"

    @property
    def is_usable(self) -> bool:
        return self.revoked is None and (self.expires is None or self.expires > timezone.now())

    def allows(self, scope: str) -> bool:
        """Whether the key may be used for this (a value of Scope). Scopes do not include each other."""
        return scope in self.scopes

    @property
    def scope_list(self) -> str:
        """For people: the scopes, comma-separated."""
        return ", ".join(self.scopes)
