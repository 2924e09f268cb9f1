"""Generations for operators: states, tokens and times. Texts are not shown."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from pagoda.generations.models import Generation


@admin.register(Generation)
class GenerationAdmin(ModelAdmin):
    list_display = (
        *("created", "tenant", "purpose", "state", "finish_reason", "model"),
        *("prompt_tokens", "cached_tokens", "output_tokens", "queued_s", "prefill_s", "decode_s"),
    )
    list_filter = ("state", "purpose", "tenant", "created")
    search_fields = ("id", "lineage")
    list_select_related = ("tenant",)
    ordering = ("-created",)
    fields = (
        *("id", "tenant", "user", "api_key", "purpose", "state", "finish_reason", "error", "model", "lineage"),
        *("prompt_tokens", "cached_tokens", "output_tokens", "queued_s", "prefill_s", "decode_s", "blocks_freed"),
        *("seq", "engine", "engine_instance", "lease_owner", "lease_expires", "created", "finished"),
    )
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Generation]:
        return Generation.across_tenants.defer("text", "token_ids", "request")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Generation | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Generation | None = None) -> bool:
        return False
