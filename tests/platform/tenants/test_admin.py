"""The operators' admin of tenants and people."""

import re

import pytest

from pagoda.tenants.keys import authenticate_key, create_key
from pagoda.tenants.models import AuditEntry, Invitation, Membership, Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def desk(client, operator):
    client.force_login(operator)
    return client


def inline(prefix, total=0, initial=0):
    return {f"{prefix}-TOTAL_FORMS": total, f"{prefix}-INITIAL_FORMS": initial}


def page(tenant, **extra):
    fields = {"name": tenant.name, "slug": tenant.slug, "is_active": "on", "cache_scope": "tenant"}
    quota = {"quota-0-tenant": str(tenant.id), "quota-0-reservation": 0, "quota-0-limit": "", "quota-0-weight": 1}
    forms = inline("quota", 1, 1) | inline("memberships") | inline("invitations") | inline("api_keys")
    forms |= inline("limits") | inline("prices") | inline("file_quota")
    return fields | quota | forms | extra


@pytest.mark.parametrize(
    "path", ["tenants/tenant", "tenants/user", "tenants/invitation", "tenants/apikey", "tenants/auditentry"]
)
def test_every_list_opens_across_tenants(desk, acme, rival, path):
    create_key(acme.tenant.id, "key of acme", created_by=acme.admin)
    create_key(rival.tenant.id, "key of rival", created_by=rival.admin)
    assert desk.get(f"/admin/{path}/").status_code == 200
    assert desk.get(f"/admin/{path}/?q=rival").status_code == 200


def test_every_page_of_a_person_and_a_tenant_opens(desk, acme):
    key, _ = create_key(acme.tenant.id, "ci", created_by=acme.admin)
    for path in (
        "tenants/tenant/add",
        f"tenants/tenant/{acme.tenant.id}/change",
        "tenants/user/add",
        f"tenants/user/{acme.member.id}/change",
        "tenants/apikey/add",
        f"tenants/apikey/{key.id}/change",
        f"tenants/auditentry/{AuditEntry.across_tenants.get().id}/change",
    ):
        assert desk.get(f"/admin/{path}/").status_code == 200, path


def test_an_operator_invites_a_tenants_first_admin(desk, acme, operator, client):
    row = {"invitations-0-email": "boss@acme.example", "invitations-0-role": "admin"}
    data = page(acme.tenant, **inline("invitations", 1), **row)
    response = desk.post(f"/admin/tenants/tenant/{acme.tenant.id}/change/", data, follow=True)
    link = re.search(r"http://testserver(/invitations/[\w-]+/)", response.content.decode())[1]
    invitation = Invitation.across_tenants.get()
    assert (invitation.tenant, invitation.role, invitation.invited_by) == (acme.tenant, "admin", operator)
    assert link not in desk.get(f"/admin/tenants/tenant/{acme.tenant.id}/change/").content.decode()
    client.logout()
    assert client.get(link).status_code == 200


def test_members_are_changed_inside_their_tenant(desk, acme, rival):
    row = Membership.across_tenants.get(user=acme.member)
    forms = inline("memberships", 2, 1) | {
        "memberships-0-id": str(row.id),
        "memberships-0-tenant": str(acme.tenant.id),
        "memberships-0-user": str(acme.member.id),
        "memberships-0-role": "admin",
        "memberships-1-tenant": str(acme.tenant.id),
        "memberships-1-user": str(rival.member.id),
        "memberships-1-role": "member",
    }
    response = desk.post(f"/admin/tenants/tenant/{acme.tenant.id}/change/", page(acme.tenant, **forms))
    assert response.status_code == 302
    row.refresh_from_db()
    assert row.role == "admin"
    assert Membership.across_tenants.filter(tenant=acme.tenant, user=rival.member).exists()


def test_a_row_of_another_tenant_cannot_be_smuggled_in(desk, acme, rival):
    row = Membership.across_tenants.get(user=rival.member)
    forms = inline("memberships", 1, 1) | {
        "memberships-0-id": str(row.id),
        "memberships-0-tenant": str(acme.tenant.id),
        "memberships-0-user": str(rival.member.id),
        "memberships-0-role": "admin",
    }
    desk.post(f"/admin/tenants/tenant/{acme.tenant.id}/change/", page(acme.tenant, **forms))
    row.refresh_from_db()
    assert (row.tenant, row.role) == (rival.tenant, "member")


def test_keys_are_revoked_and_never_shown(desk, acme):
    key, text = create_key(acme.tenant.id, "ci", created_by=acme.admin)
    listing = desk.get("/admin/tenants/apikey/").content.decode()
    assert key.prefix in listing
    assert text not in listing
    assert key.hash not in listing
    desk.post("/admin/tenants/apikey/", {"action": "revoke", "_selected_action": [str(key.id)]})
    assert authenticate_key(text) is None


def test_invitations_are_withdrawn(desk, acme):
    from pagoda.tenants import invitations

    invitation, link = invitations.invite(acme.tenant.id, "x@acme.example", "member", invited_by=acme.admin)
    desk.post("/admin/tenants/invitation/", {"action": "withdraw", "_selected_action": [str(invitation.id)]})
    assert invitations.find(link.split("/")[-2]) is None


def test_the_record_cannot_be_changed(desk, acme):
    create_key(acme.tenant.id, "ci", created_by=acme.admin)
    entry = AuditEntry.across_tenants.get()
    assert desk.post(f"/admin/tenants/auditentry/{entry.id}/change/", {"what": "nothing"}).status_code == 403
    assert desk.post(f"/admin/tenants/auditentry/{entry.id}/delete/", {"post": "yes"}).status_code == 403


def test_acts_on_tenants_are_recorded(desk, acme, rival, operator):
    desk.post(f"/admin/tenants/tenant/{acme.tenant.id}/change/", page(acme.tenant, name="Acme & Sons"))
    desk.post(f"/admin/tenants/tenant/{rival.tenant.id}/delete/", {"post": "yes"})
    acts = AuditEntry.across_tenants.filter(who=operator).values_list("what", flat=True)
    assert {"tenant.changed", "tenant.deleted"} <= set(acts)
    assert Tenant.objects.get().name == "Acme & Sons"


def test_an_operator_is_no_member(desk, operator):
    assert not Membership.across_tenants.filter(user=operator).exists()
    assert desk.get("/members/").status_code == 403


def test_an_operator_makes_changes_and_rotates_a_key(desk, acme, rival, operator):
    values = {"tenant": str(acme.tenant.id), "label": "ops", "scopes": ["batch"], "tokens_per_minute": "70"}
    response = desk.post("/admin/tenants/apikey/add/", values | {"expires_0": "", "expires_1": ""}, follow=True)
    text = re.search(r"pgd_\w{8}_[\w-]{43}", response.content.decode())[0]
    key = authenticate_key(text)
    assert (key.tenant, key.scopes, key.tokens_per_minute, key.created_by) == (acme.tenant, ["batch"], 70, operator)
    path = f"/admin/tenants/apikey/{key.id}/change/"
    assert text not in desk.get(path).content.decode()
    moved = {"tenant": str(rival.tenant.id), "label": "ops 2", "scopes": ["chat"], "monthly_tokens": "5"}
    assert desk.post(path, moved).status_code == 302
    key = authenticate_key(text)
    assert (key.tenant, key.label, key.scopes, key.monthly_tokens) == (acme.tenant, "ops 2", ["chat"], 5)
    assert desk.post(path, moved | {"scopes": []}).status_code == 200
    chosen = {"action": "rotate", "_selected_action": [str(key.id)]}
    page = desk.post("/admin/tenants/apikey/", chosen, follow=True).content.decode()
    new = authenticate_key(re.search(r"pgd_\w{8}_[\w-]{43}", page)[0])
    assert (new.label, new.monthly_tokens) == ("ops 2", 5)
    assert authenticate_key(text).replaced_by == new
    acts = AuditEntry.across_tenants.filter(what__startswith="key.").order_by("when").values_list("what", "who")
    assert list(acts) == [(what, operator.pk) for what in ("key.created", "key.changed", "key.rotated")]
    assert desk.post(f"/admin/tenants/apikey/{key.id}/delete/", {"post": "yes"}).status_code == 403
