"""Conversations for operators: whose, when, how many messages. No text, not even the title, which is made of it."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin

from pagoda.chat.models import Conversation


@admin.register(Conversation)
class ConversationAdmin(ModelAdmin):
    list_display = ("id", "tenant", "owner", "api_key", "message_count", "created", "updated", "deleted")
    list_filter = ("tenant", "created", ("deleted", admin.EmptyFieldListFilter))
    search_fields = ("id", "owner__email")
    list_select_related = ("tenant", "owner", "api_key")
    ordering = ("-updated",)
    fields = ("id", "tenant", "owner", "api_key", "message_count", "created", "updated", "deleted")
    readonly_fields = fields

    @admin.display(description=_("messages"), ordering="message_count")
    def message_count(self, conversation: Conversation) -> int:
        return conversation.message_count  # type: ignore[attr-defined]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Conversation]:
        return Conversation.across_tenants.defer("title", "system_text").annotate(message_count=Count("messages"))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Conversation | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Conversation | None = None) -> bool:
        return False
