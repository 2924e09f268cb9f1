"""Tenants and people in the operators' admin. Only operators get in, and nothing here shows a secret or a message."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db.models import Count, QuerySet
from django.forms import ModelForm
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from pagoda.tenants import audit, invitations
from pagoda.tenants.admin_rows import PER_PAGE, AcrossTenants, AcrossTenantsFormSet, ReadOnly, acting
from pagoda.tenants.keys_admin import ApiKeyInline
from pagoda.tenants.models import AuditEntry, Invitation, Membership, Tenant, User


class MembershipInline(AcrossTenants, TabularInline):
    model = Membership
    formset = AcrossTenantsFormSet
    extra = 0
    tab = True
    per_page = PER_PAGE
    read_along = ("user", "tenant")
    autocomplete_fields = ("user",)
    fields = ("user", "role", "created")
    readonly_fields = ("created",)


class InvitationInline(AcrossTenants, TabularInline):
    """Adding a row makes an invitation: its link is shown once, in a message."""

    model = Invitation
    formset = AcrossTenantsFormSet
    extra = 0
    tab = True
    per_page = PER_PAGE
    read_along = ("invited_by",)
    can_delete = False
    fields = ("email", "role", "expires", "accepted", "revoked", "invited_by")
    readonly_fields = ("expires", "accepted", "revoked", "invited_by")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Tenant)
class TenantAdmin(ModelAdmin):
    list_display: tuple[str, ...] = ("name", "slug", "active", "members")
    list_filter = ("is_active",)
    search_fields = ("name", "slug")
    prepopulated_fields: ClassVar[dict[str, tuple[str, ...]]] = {"slug": ("name",)}
    fields: tuple[Any, ...] = (("name", "slug"), "is_active", "cache_scope", "retention_days", "created")
    readonly_fields: tuple[str, ...] = ("created",)
    radio_fields: ClassVar[dict[str, int]] = {"cache_scope": admin.VERTICAL}
    inlines: tuple[type[admin.options.InlineModelAdmin], ...] = (MembershipInline, InvitationInline, ApiKeyInline)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        return super().get_queryset(request).annotate(member_count=Count("memberships"))

    @display(description=gettext_lazy("active"), ordering="is_active", boolean=True)
    def active(self, tenant: Tenant) -> bool:
        return tenant.is_active

    @display(description=gettext_lazy("members"), ordering="member_count")
    def members(self, tenant: Any) -> int:
        return tenant.member_count

    def save_model(self, request: HttpRequest, obj: Tenant, form: ModelForm, change: bool) -> None:
        super().save_model(request, obj, form, change)
        what = "tenant.changed" if change else "tenant.created"
        audit.record(what, who=acting(request), tenant_id=obj.id, fields=form.changed_data, slug=obj.slug)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[Any, Any, set[str], Any]:
        """Rows that nobody may delete by themselves, such as the ledger's, go with their tenant."""
        deleted, counts, _needed, protected = super().get_deleted_objects(objs, request)
        return deleted, counts, set(), protected

    def delete_model(self, request: HttpRequest, obj: Tenant) -> None:
        audit.record("tenant.deleted", who=acting(request), slug=obj.slug, name=obj.name)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> None:
        for tenant in queryset:
            self.delete_model(request, tenant)

    def save_formset(self, request: HttpRequest, form: ModelForm, formset: BaseInlineFormSet, change: bool) -> None:
        if formset.model is Invitation:
            self._invite(request, formset)
        else:
            super().save_formset(request, form, formset, change)
            _audit_members(request, formset)

    def _invite(self, request: HttpRequest, formset: BaseInlineFormSet) -> None:
        for invitation in formset.save(commit=False):
            try:
                made, link = invitations.invite(
                    formset.instance.pk,
                    invitation.email,
                    invitation.role,
                    invited_by=acting(request),
                    site=invitations.site_of(request),
                )
            except invitations.InvitationRefused as refusal:
                messages.error(request, str(refusal))
                continue
            if not invitations.send(made, link):
                text = _("Pass this link on to %(email)s. It works once and is shown only now: %(link)s")
                messages.warning(request, text % {"email": made.email, "link": link})


def _audit_members(request: HttpRequest, formset: BaseInlineFormSet) -> None:
    if formset.model is not Membership:
        return
    changed = [*formset.new_objects, *(row for row, _fields in formset.changed_objects)]
    for row in changed:
        details = {"member": str(row.user_id), "role": row.role}
        audit.record("member.role", who=acting(request), tenant_id=row.tenant_id, **details)
    for row in formset.deleted_objects:
        audit.record("member.removed", who=acting(request), tenant_id=row.tenant_id, member=str(row.user_id))


class PersonCreationForm(UserCreationForm):
    class Meta:
        model = User
        fields = ("email", "name")


class PersonMembershipInline(MembershipInline):
    """The same rows, seen from the person."""

    autocomplete_fields = ("tenant",)
    fields = ("tenant", "role", "created")


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):
    form = UserChangeForm
    add_form = PersonCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("email", "name", "is_staff", "is_active", "last_login")
    list_filter = ("is_staff", "is_active")
    search_fields = ("email", "name")
    ordering = ("email",)
    filter_horizontal = ()
    readonly_fields = ("last_login", "created")
    fieldsets = (
        (None, {"fields": ("email", "name", "password")}),
        (gettext_lazy("May"), {"fields": ("is_active", "is_staff", "is_superuser")}),
        (gettext_lazy("Dates"), {"fields": ("last_login", "created")}),
    )
    add_fieldsets = (
        (None, {"classes": ("wide",), "fields": ("email", "name", "usable_password", "password1", "password2")}),
    )
    inlines = (PersonMembershipInline,)

    def save_model(self, request: HttpRequest, obj: User, form: ModelForm, change: bool) -> None:
        super().save_model(request, obj, form, change)
        what = "user.changed" if change else "user.created"
        audit.record(what, who=acting(request), user=str(obj.pk), fields=form.changed_data)


@admin.register(Invitation)
class InvitationAdmin(AcrossTenants, ReadOnly, ModelAdmin):
    """All invitations. New ones are made in their tenant, where the link is shown."""

    list_display = ("email", "tenant", "role", "state", "expires", "invited_by")
    list_filter = ("tenant", "role")
    list_select_related = ("tenant", "invited_by")
    search_fields = ("email",)
    fields = ("tenant", "email", "role", "invited_by", "created", "expires", "accepted", "revoked")
    actions = ("withdraw",)

    @display(description=gettext_lazy("state"), label={"open": "info", "accepted": "success"})
    def state(self, invitation: Invitation) -> tuple[str, str]:
        if invitation.accepted:
            return "accepted", _("accepted")
        return ("open", _("open")) if invitation.is_open else ("closed", _("closed"))

    @admin.action(description=gettext_lazy("Withdraw: their links stop working"), permissions=["view"])
    def withdraw(self, request: HttpRequest, queryset: QuerySet[Invitation]) -> None:
        for invitation in queryset:
            invitations.revoke(invitation, who=acting(request))


@admin.register(AuditEntry)
class AuditEntryAdmin(AcrossTenants, ReadOnly, ModelAdmin):
    list_display = ("when", "what", "who", "tenant", "details")
    list_filter = ("tenant", "what")
    list_select_related = ("tenant", "who")
    search_fields = ("what", "who__email")
    date_hierarchy = "when"
    fields = ("when", "what", "who", "tenant", "details")


admin.site.unregister(Group)
