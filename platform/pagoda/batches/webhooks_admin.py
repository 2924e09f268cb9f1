"""Webhooks for operators: where each tenant is told of its batches, what was sent there, and what became of it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import transaction
from django.db.models import Count, Q
from django.forms import ModelForm
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import display

from pagoda.batches.models import Webhook, WebhookAttempt, WebhookDelivery
from pagoda.tenants import audit
from pagoda.tenants.admin_rows import AcrossTenants, AcrossTenantsFormSet, ReadOnly, acting
from pagoda.tenants.scoping import tenant_scope

DELIVERED = Q(delivered__isnull=False)
WAITING = Q(delivered__isnull=True, due__isnull=False)
GIVEN_UP = Q(delivered__isnull=True, due__isnull=True)


@admin.register(Webhook)
class WebhookAdmin(AcrossTenants, ModelAdmin):
    list_display = ("url", "of_tenant", "is_active", "created")
    list_filter = ("is_active", "tenant")
    search_fields = ("url",)
    list_select_related = ("tenant",)
    fields = ("tenant", "url", "is_active", "secret_number", "secret", "sent", "created")

    @admin.display(description=gettext_lazy("secret"))
    def secret(self, webhook: Webhook) -> str:
        return "–" if webhook._state.adding else webhook.secret

    @admin.display(description=gettext_lazy("webhook deliveries"))
    def sent(self, webhook: Webhook) -> str:
        """How many there were, with the way to each of them."""
        if webhook._state.adding:
            return "–"
        deliveries = WebhookDelivery.across_tenants.filter(webhook_id=webhook.pk).order_by()
        counts = {"taken_in": Count("id", DELIVERED), "waiting": Count("id", WAITING), "failed": Count("id", GIVEN_UP)}
        text = _("%(taken_in)s delivered, %(waiting)s waiting, %(failed)s given up") % deliveries.aggregate(**counts)
        address = reverse("admin:batches_webhookdelivery_changelist")
        link = '<a class="text-primary-600 dark:text-primary-500" href="{}?webhook__id__exact={}">{}</a>'
        return format_html(link, address, webhook.pk, text)

    def get_readonly_fields(self, request: HttpRequest, obj: Webhook | None = None) -> tuple[str, ...]:
        return ("secret", "sent", "created") if obj is None else ("tenant", "secret", "sent", "created")

    def save_model(self, request: HttpRequest, obj: Webhook, form: ModelForm, change: bool) -> None:
        with tenant_scope(obj.tenant_id), transaction.atomic():
            obj.save()
            audit.record("webhook.changed", who=acting(request), tenant_id=obj.tenant_id, webhook=str(obj.pk))

    def delete_model(self, request: HttpRequest, obj: Webhook) -> None:
        with tenant_scope(obj.tenant_id), transaction.atomic():
            audit.record("webhook.deleted", who=acting(request), tenant_id=obj.tenant_id, webhook=str(obj.pk))
            obj.delete()

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[Any, Any, set[str], Any]:
        """Deliveries and their attempts go with their webhook, though nobody deletes one by itself."""
        deleted, counts, _needed, protected = super().get_deleted_objects(objs, request)
        return deleted, counts, set(), protected


class Outcome(admin.SimpleListFilter):
    """Deliveries by what became of them."""

    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("delivered", _("delivered")), ("waiting", _("waiting")), ("failed", _("given up"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        chosen = {"delivered": DELIVERED, "waiting": WAITING, "failed": GIVEN_UP}.get(self.value() or "")
        return queryset if chosen is None else queryset.filter(chosen)


class AttemptInline(AcrossTenants, ReadOnly, TabularInline):
    """Every time that the delivery was sent."""

    model = WebhookAttempt
    formset = AcrossTenantsFormSet
    extra = 0
    hide_title = True
    fields = ("number", "begun", "ended", "told_result")
    readonly_fields = fields

    @display(description=gettext_lazy("result"))
    def told_result(self, attempt: WebhookAttempt) -> str:
        return attempt.result or _("no result: under way, or its worker died")


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(AcrossTenants, ReadOnly, ModelAdmin):
    list_display = ("created", "of_tenant", "webhook", "event", "state", "attempts", "result", "delivered", "due")
    list_filter = (Outcome, "event", "tenant", "created")
    list_select_related = ("tenant", "webhook")
    search_fields = ("id", "webhook__url")
    fields = ("id", "tenant", "webhook", "event", "payload", "attempts", "result", "created", "delivered", "due")
    readonly_fields = fields
    inlines = (AttemptInline,)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Also those of one webhook, which its page leads to."""
        return lookup == "webhook__id__exact" or super().lookup_allowed(lookup, value, request)

    @display(description=gettext_lazy("state"), label={"delivered": "success", "waiting": "info", "failed": "danger"})
    def state(self, delivery: WebhookDelivery) -> tuple[str, str]:
        if delivery.delivered is not None:
            return "delivered", _("delivered")
        return ("failed", _("given up")) if delivery.due is None else ("waiting", _("waiting"))
