"""The rows behind webhooks: where a tenant is told of batches that ended, and what it was told."""

from __future__ import annotations

import base64
import hashlib
import hmac

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.batches.public_address import AddressRefused, check_literal, parse
from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import Tenant
from pagoda.tenants.scoping import TenantOwned

SECRET_PREFIX = "whsec_"


def check_url(url: str) -> None:
    """Raises ValidationError for what is no address on the web."""
    try:
        parse(url)
    except AddressRefused as refused:
        raise ValidationError(str(refused)) from None


class Webhook(TenantOwned):
    """An address that hears of a tenant's batches. Its secret is made from the installation's: the database has none.

    secret_number: raised to get another secret.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="webhooks")
    url = models.CharField(_("address"), max_length=500, validators=[check_url])
    is_active = models.BooleanField(_("active"), default=True)
    secret_number = models.PositiveIntegerField(
        _("number of the secret"), default=1, help_text=_("Another number gives another secret.")
    )
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("webhook")
        verbose_name_plural = _("webhooks")
        ordering = ("-created",)
        default_manager_name = "objects"

    def __str__(self) -> str:
        return self.url

    def clean(self) -> None:
        """Raises ValidationError where nothing would ever be sent. A name is looked up with every delivery instead."""
        try:
            if self.is_active:
                check_literal(parse(self.url))
        except AddressRefused as refused:
            raise ValidationError({"url": str(refused)}) from None

    @property
    def secret(self) -> str:
        """``whsec_`` and 32 bytes in base64, as Standard Webhooks has secrets."""
        return SECRET_PREFIX + base64.b64encode(self.signing_key()).decode()

    def signing_key(self) -> bytes:
        """32 bytes; others for another PAGODA_SECRET_KEY."""
        what = f"webhook {self.pk} {self.secret_number}".encode()
        return hmac.digest(settings.SECRET_KEY.encode(), what, hashlib.sha256)


class WebhookDelivery(TenantOwned):
    """One event for one address: sent until it is taken in, or given up.

    id: the same at every attempt, so that who hears it twice can tell. due: of the next attempt; None: there is none.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries", verbose_name=_("webhook"))
    event = models.CharField(_("event"), max_length=40)
    payload = models.TextField()
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0)
    due = models.DateTimeField(_("next attempt"), null=True, default=timezone.now)
    delivered = models.DateTimeField(_("delivered"), null=True)
    result = models.CharField(_("result"), max_length=200, blank=True)
    created = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("webhook delivery")
        verbose_name_plural = _("webhook deliveries")
        ordering = ("-created",)
        default_manager_name = "objects"
        indexes = (models.Index(fields=["due"], name="webhook_due", condition=models.Q(due__isnull=False)),)

    def __str__(self) -> str:
        return f"{self.event} {self.id}"


class WebhookAttempt(TenantOwned):
    """One time that a delivery was sent.

    result: empty while it is under way, and for ever where the worker died meanwhile.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    delivery = models.ForeignKey(WebhookDelivery, on_delete=models.CASCADE, related_name="tries")
    number = models.PositiveSmallIntegerField(_("number"))
    begun = models.DateTimeField(_("begun"), default=timezone.now)
    ended = models.DateTimeField(_("ended"), null=True)
    result = models.CharField(_("result"), max_length=200, blank=True)

    class Meta:
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        ordering = ("number",)
        default_manager_name = "objects"
        constraints = (models.UniqueConstraint(fields=("delivery", "number"), name="attempt_once"),)

    def __str__(self) -> str:
        return f"{self.number}: {self.result}"
