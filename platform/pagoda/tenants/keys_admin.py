"""API keys in the operators' admin: of all tenants, by their prefixes. A new key's text is shown once, in a message."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from pagoda.tenants import keys
from pagoda.tenants.admin_rows import NOBODY, PER_PAGE, AcrossTenants, AcrossTenantsFormSet, ReadOnly, acting
from pagoda.tenants.models import LIMITS, ApiKey, Scope
from pagoda.tenants.models.access import usual_scopes
from pagoda.tenants.models.limits import told_limits
from pagoda.tenants.scoping import tenant_scope

TOLD = ("created_by", "created", "revoked", "replaced_by")
"""Fields that are shown and never asked for."""


class AnyTenantsKeyForm(forms.ModelForm):
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Scopes"),
        choices=Scope.choices,
        initial=usual_scopes,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
    )

    class Meta:
        model = ApiKey
        fields = ("tenant", "label", "scopes", "expires", *LIMITS)
        labels: ClassVar[dict[str, Any]] = {"tenant": gettext_lazy("tenant")}


class KeyColumns:
    """Columns of keys that are no fields."""

    @display(description=gettext_lazy("scopes"))
    def scope_list(self, key: ApiKey) -> str:
        return key.scope_list

    @display(description=gettext_lazy("limits"))
    def limit_list(self, key: ApiKey) -> str:
        return told_limits(key) or "—"

    @display(description=gettext_lazy("state"), label={"active": "success"})
    def state(self, key: ApiKey) -> tuple[str, str]:
        if key.is_usable:
            return "active", _("active")
        if key.revoked:
            return "revoked", _("revoked")
        return ("replaced", _("replaced")) if key.replaced_by_id else ("expired", _("expired"))


class ApiKeyInline(KeyColumns, AcrossTenants, ReadOnly, TabularInline):
    model = ApiKey
    formset = AcrossTenantsFormSet
    extra = 0
    tab = True
    per_page = PER_PAGE
    read_along = ("created_by",)
    fields = ("label", "prefix", "scope_list", "limit_list", "told_state", "created_by", "created", "expires")
    readonly_fields = fields

    @display(description=gettext_lazy("state"))
    def told_state(self, key: ApiKey) -> str:
        """In words alone: an inline knows no labels."""
        return self.state(key)[1]


@admin.register(ApiKey)
class ApiKeyAdmin(KeyColumns, AcrossTenants, ModelAdmin):
    """Operators manage every tenant's keys, as tenants' admins do their own."""

    list_display = ("label", "of_tenant", "prefix", "scope_list", "state", "limit_list", "created", "expires")
    list_filter = ("tenant",)
    list_select_related = ("tenant", "created_by")
    search_fields = ("label", "prefix")
    form = AnyTenantsKeyForm
    autocomplete_fields = ("tenant",)
    actions = ("rotate", "revoke")

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        asked = ("label", "scopes", "expires", *LIMITS)
        return ("tenant", *asked) if obj is None else ("tenant", "prefix", *asked, *TOLD)

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        return () if obj is None else ("tenant", "prefix", "expires", *TOLD)

    def get_form(self, request: HttpRequest, obj: ApiKey | None = None, **kwargs: Any) -> type[forms.ModelForm]:
        with tenant_scope(NOBODY if obj is None else obj.tenant_id):
            return super().get_form(request, obj, **kwargs)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """What a key is, and its record, are ``keys``' to write; the text of a new one is shown in a message."""
        limits = {name: form.cleaned_data[name] for name in LIMITS}
        label, scopes, who = form.cleaned_data["label"], form.cleaned_data["scopes"], acting(request)
        if change:
            keys.change_key(obj, who=who, label=label, scopes=scopes, **limits)
            return
        expires = form.cleaned_data["expires"]
        made, text = keys.create_key(obj.tenant_id, label, created_by=who, scopes=scopes, expires=expires, **limits)
        obj.pk, obj.prefix = made.pk, made.prefix
        _show_once(request, made, text)

    @admin.action(description=gettext_lazy("Revoke: whatever uses them stops working"), permissions=["view"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset:
            keys.revoke_key(key, who=acting(request))

    @admin.action(
        description=gettext_lazy("Rotate: the old ones work for another day"),
        permissions=["change"],
    )
    def rotate(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset:
            try:
                _show_once(request, *keys.rotate_key(key, who=acting(request), overlap=timedelta(days=1)))
            except keys.KeyRefused as refusal:
                messages.error(request, f"{key}: {refusal}")


def _show_once(request: HttpRequest, key: ApiKey, text: str) -> None:
    told = _("Pass the key “%(label)s” on. It is shown only now: %(text)s")
    messages.warning(request, told % {"label": key.label, "text": text})
