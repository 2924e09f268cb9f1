"""Published prefixes and assistants for operators. What the engines say of a prefix stands beside it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.db.models import Count, Model, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.admin import ModelAdmin
from unfold.decorators import display

from pagoda.assistants import changing, publishing
from pagoda.assistants.forms import AssistantForm, PrefixForm
from pagoda.assistants.models import Assistant, Publication, PublishedPrefix
from pagoda.tenants import audit
from pagoda.tenants.admin import AcrossTenants, acting
from pagoda.tenants.scoping import tenant_scope


def tell_about_push(request: HttpRequest) -> None:
    """Say what the engines made of the list. Called after the commit."""
    results = publishing.last_push()
    for pushed in results:
        if pushed.unreachable:
            text = _("Saved. The engine at %(address)s did not answer: it gets the prefixes when it is back.")
            messages.warning(request, text % {"address": pushed.address})
        elif pushed.problem:
            text = _("Saved, but the engine at %(address)s refused the prefixes: %(problem)s")
            messages.error(request, text % {"address": pushed.address, "problem": pushed.problem})
        for name, reason in pushed.refused:
            text = _("The engine at %(address)s does not keep “%(name)s”: %(reason)s")
            messages.error(request, text % {"address": pushed.address, "name": name, "reason": reason})
    if results and not any(pushed.problem or pushed.refused for pushed in results):
        messages.success(request, _("Every engine has the published prefixes."))


def _publications(prefix: PublishedPrefix) -> list[Publication]:
    """What the present engines say; those that are no longer in PAGODA_ENGINES say nothing."""
    return [each for each in prefix.publications.all() if each.engine in settings.PAGODA_ENGINES]


def _said(publication: Publication) -> str:
    if publication.error:
        return publication.error
    if publishing.is_computing(publication):
        return _("being computed")
    sizes = {"tokens": f"{publication.tokens:,}", "blocks": f"{publication.blocks:,}"}
    return _("%(tokens)s tokens, %(blocks)s blocks held") % sizes


@admin.register(PublishedPrefix)
class PublishedPrefixAdmin(ModelAdmin):
    form = PrefixForm
    list_display = ("name", "state", "blocks", "used_by", "changed", "changed_by")
    list_filter = ("active",)
    list_select_related = ("changed_by",)
    search_fields = ("name",)
    fields = (
        "name",
        "text",
        "active",
        "on_the_engines",
        "used_by",
        ("created", "created_by"),
        ("changed", "changed_by"),
    )
    readonly_fields = ("on_the_engines", "used_by", "created", "created_by", "changed", "changed_by")

    def get_queryset(self, request: HttpRequest) -> QuerySet[PublishedPrefix]:
        rows = super().get_queryset(request).prefetch_related("publications")
        return rows.annotate(assistant_count=Count("assistants", distinct=True))

    @display(
        description=gettext_lazy("state"), label={"published": "success", "refused": "danger", "waiting": "warning"}
    )
    def state(self, prefix: PublishedPrefix) -> tuple[str, str]:
        publications = _publications(prefix)
        if not prefix.active:
            return "withdrawn", _("withdrawn")
        if any(each.error for each in publications):
            return "refused", _("refused")
        if not publications:
            return "waiting", _("waiting for an engine")
        computing = any(publishing.is_computing(each) for each in publications)
        return ("waiting", _("being computed")) if computing else ("published", _("published"))

    @display(description=gettext_lazy("blocks held"))
    def blocks(self, prefix: PublishedPrefix) -> str:
        return " · ".join("—" if each.error else f"{each.blocks:,}" for each in _publications(prefix)) or "—"

    @display(description=gettext_lazy("tenants"), ordering="assistant_count")
    def used_by(self, prefix: Any) -> int:
        return getattr(prefix, "assistant_count", 0)

    @display(description=gettext_lazy("on the engines"))
    def on_the_engines(self, prefix: PublishedPrefix) -> SafeString | str:
        rows = [(each.engine, _said(each)) for each in _publications(prefix)]
        return format_html_join("", "<p>{}: {}</p>", rows) or "—"

    def save_model(self, request: HttpRequest, obj: PublishedPrefix, form: ModelForm, change: bool) -> None:
        obj.changed, obj.changed_by = timezone.now(), acting(request)
        if not change:
            obj.created_by = obj.changed_by
        super().save_model(request, obj, form, change)
        _record("prefix.changed" if change else "prefix.created", request, obj)

    def delete_model(self, request: HttpRequest, obj: PublishedPrefix) -> None:
        _record("prefix.deleted", request, obj)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[PublishedPrefix]) -> None:
        for prefix in queryset:
            self.delete_model(request, prefix)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return _told(request, super().changeform_view(request, *args, **kwargs))

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return _told(request, super().delete_view(request, *args, **kwargs))


def _told(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    if request.method == "POST" and response.status_code == 302:
        tell_about_push(request)
    return response


def _record(what: str, request: HttpRequest, prefix: PublishedPrefix) -> None:
    details: dict[str, Any] = {"name": prefix.name, "active": prefix.active, "characters": len(prefix.text)}
    audit.record(what, who=acting(request), prefix=str(prefix.pk), **details)


@admin.register(Assistant)
class AssistantAdmin(AcrossTenants, ModelAdmin):
    model: type[Model] = Assistant
    form = AssistantForm
    list_display = ("tenant", "prefix", "has_text", "changed", "changed_by")
    list_filter = ("prefix",)
    list_select_related = ("tenant", "prefix", "changed_by")
    search_fields = ("tenant__name", "tenant__slug")
    autocomplete_fields = ("tenant",)
    fields = ("tenant", "prefix", "text", ("changed", "changed_by"))

    @display(description=gettext_lazy("own text"), boolean=True)
    def has_text(self, assistant: Assistant) -> bool:
        return bool(assistant.text)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("changed", "changed_by") if obj is None else ("tenant", "changed", "changed_by")

    def save_model(self, request: HttpRequest, obj: Assistant, form: ModelForm, change: bool) -> None:
        changing.save(obj, who=acting(request))

    def delete_model(self, request: HttpRequest, obj: Assistant) -> None:
        audit.record("assistant.deleted", who=acting(request), tenant_id=obj.tenant_id)
        with tenant_scope(obj.tenant_id):
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Assistant]) -> None:
        for assistant in queryset:
            self.delete_model(request, assistant)
