"""`/members/`: a tenant's admin manages their own tenant, and no other."""

import html
import re

import pytest

from pagoda.tenants.keys import authenticate_key, create_key
from pagoda.tenants.models import ApiKey, AuditEntry, Invitation, Membership, Role

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(acme, client):
    client.force_login(acme.admin)
    return client


KEY = {"label": "ci", "lifetime": "30", "scopes": ["chat"], "requests_per_minute": "60", "monthly_tokens": "9000"}


def membership(party, user):
    return Membership.across_tenants.get(tenant=party.tenant, user=user)


def test_strangers_sign_in_first(client, acme):
    assert client.get("/members/")["Location"] == "/accounts/login/?next=/members/"


def test_members_and_operators_are_refused(client, acme, operator):
    for person in (acme.member, operator):
        client.force_login(person)
        assert client.get("/members/").status_code == 403


def test_the_page_lists_the_own_tenant_alone(admin, acme, rival):
    create_key(rival.tenant.id, "rival's", created_by=rival.admin)
    create_key(acme.tenant.id, "continuous", created_by=acme.admin)
    page = admin.get("/members/").content.decode()
    assert acme.member.email in page
    assert "continuous" in page
    assert "rival" not in page.lower()


def test_an_invitation_shows_its_link_once(admin, acme):
    response = admin.post("/members/invite", {"email": "new@acme.example", "role": "member"}, follow=True)
    assert response.redirect_chain == [("/members/", 302)]
    link = re.search(r'value="http://testserver(/invitations/[^"]+/)"', response.content.decode())[1]
    assert response["Cache-Control"] == "no-store"
    assert link not in admin.get("/members/").content.decode()
    admin.logout()
    assert admin.get(link).status_code == 200


def test_links_use_the_sites_address_where_it_is_set(admin, settings):
    settings.PAGODA_SITE_URL, settings.PAGODA_SITE_URL_IS_SET = "https://chat.example", True
    response = admin.post("/members/invite", {"email": "new@acme.example", "role": "member"}, follow=True)
    assert 'value="https://chat.example/invitations/' in response.content.decode()


def test_a_secret_is_not_shown_on_another_tenants_page(admin, acme, rival):
    Membership.across_tenants.create(tenant=rival.tenant, user=acme.admin, role=Role.ADMIN)
    admin.post("/members/keys", {"label": "ci", "scopes": ["chat"]})
    assert "new-key" not in admin.get("/members/?tenant=rival").content.decode()
    assert "new-key" not in admin.get("/members/?tenant=acme").content.decode()


def test_an_invitation_can_be_withdrawn(admin, acme):
    admin.post("/members/invite", {"email": "new@acme.example", "role": "member"}, follow=True)
    invitation = Invitation.across_tenants.get()
    admin.post(f"/members/invitations/{invitation.id}/revoke")
    assert "new@acme.example" not in admin.get("/members/").content.decode()


def test_wrong_input_is_explained(admin):
    response = admin.post("/members/invite", {"email": "nobody", "role": "member"})
    assert response.status_code == 422
    assert "valid email" in response.content.decode()
    assert admin.post("/members/invite", {"email": "a@b.example", "role": "operator"}).status_code == 422
    assert admin.post("/members/keys", {"label": "", "requests_per_minute": "-1"}).status_code == 422


def test_roles_change_and_people_leave(admin, acme):
    row = membership(acme, acme.member)
    admin.post(f"/members/{row.id}/role", {"role": "admin"})
    assert membership(acme, acme.member).role == Role.ADMIN
    admin.post(f"/members/{row.id}/remove")
    assert not Membership.across_tenants.filter(pk=row.pk).exists()
    acme.member.refresh_from_db()


def test_the_last_admin_stays(admin, acme):
    row = membership(acme, acme.admin)
    admin.post(f"/members/{row.id}/role", {"role": "member"})
    admin.post(f"/members/{row.id}/remove")
    assert membership(acme, acme.admin).role == Role.ADMIN
    assert "make somebody else one first" in html.unescape(admin.get("/members/").content.decode())


def test_a_key_is_shown_once_and_revoked(admin, acme):
    response = admin.post("/members/keys", KEY, follow=True)
    assert response.redirect_chain == [("/members/", 302)]
    text = re.search(r"pgd_\w{8}_[\w-]{43}", response.content.decode())[0]
    key = authenticate_key(text)
    assert (key.tenant, key.created_by, key.requests_per_minute) == (acme.tenant, acme.admin, 60)
    assert (key.scopes, key.monthly_tokens) == (["chat"], 9000)
    page = admin.get("/members/").content.decode()
    assert text not in page
    assert f"pgd_{key.prefix}" in page
    admin.post(f"/members/keys/{key.id}/revoke")
    assert authenticate_key(text) is None


def test_another_tenants_rows_are_unknown(admin, rival):
    invitation, _ = __import__("pagoda.tenants.invitations", fromlist=["invite"]).invite(
        rival.tenant.id, "x@rival.example", Role.MEMBER, invited_by=rival.admin
    )
    key, text = create_key(rival.tenant.id, "ci", created_by=rival.admin)
    row = membership(rival, rival.member)
    for path in (
        f"/members/invitations/{invitation.id}/revoke",
        f"/members/{row.id}/role",
        f"/members/{row.id}/remove",
        f"/members/keys/{key.id}/",
        f"/members/keys/{key.id}/rotate",
        f"/members/keys/{key.id}/revoke",
    ):
        assert admin.post(path, {"role": "admin"}).status_code == 404
    assert admin.get(f"/members/keys/{key.id}/").status_code == 404
    assert admin.get("/members/?tenant=rival").context["tenant"].slug == "acme"
    assert authenticate_key(text) is not None
    assert membership(rival, rival.member).role == Role.MEMBER


def test_a_member_of_several_tenants_chooses(admin, acme, rival):
    Membership.across_tenants.create(tenant=rival.tenant, user=acme.admin, role=Role.ADMIN)
    assert admin.get("/members/").context["tenant"] == acme.tenant
    assert admin.get("/members/?tenant=rival").context["tenant"] == rival.tenant
    admin.post("/members/keys", {"label": "for the rival", "scopes": ["chat"]})
    assert ApiKey.across_tenants.get().tenant == rival.tenant


def test_acts_are_audited(admin, acme):
    admin.post("/members/invite", {"email": "new@acme.example", "role": "member"})
    entry = AuditEntry.across_tenants.get()
    assert (entry.who, entry.tenant, entry.what) == (acme.admin, acme.tenant, "invitation.created")


def test_reading_changes_nothing_and_writing_needs_the_token(acme):
    from django.test import Client

    strict = Client(enforce_csrf_checks=True)
    strict.force_login(acme.admin)
    assert strict.post("/members/keys", {"label": "x"}).status_code == 403
    assert strict.get("/members/keys").status_code == 405


def test_an_admin_chooses_who_shares_cached_prompts(admin, acme, rival):
    page = admin.post("/members/cache", {"cache_scope": "user"}, follow=True).content.decode()
    assert "every answer from now on" in page
    acme.tenant.refresh_from_db()
    rival.tenant.refresh_from_db()
    assert (acme.tenant.cache_scope, rival.tenant.cache_scope) == ("user", "tenant")
    assert acme.tenant.scope_for(acme.member.pk) == f"user:{acme.member.pk}"
    entry = AuditEntry.across_tenants.get(what="tenant.cache_scope")
    assert (entry.who, entry.tenant, entry.details) == (acme.admin, acme.tenant, {"cache_scope": "user"})
    admin.post("/members/cache", {"cache_scope": "user"})
    assert AuditEntry.across_tenants.filter(what="tenant.cache_scope").count() == 1


def test_nobody_shares_beyond_the_tenant(admin, client, acme, rival):
    admin.post("/members/cache", {"cache_scope": "everybody"})
    acme.tenant.refresh_from_db()
    assert acme.tenant.cache_scope == "tenant"
    client.force_login(acme.member)
    assert client.post("/members/cache", {"cache_scope": "user"}).status_code == 403


def test_a_key_is_changed(admin, acme, rival):
    key, text = create_key(acme.tenant.id, "ci", created_by=acme.admin)
    page = admin.get(f"/members/keys/{key.id}/").content.decode()
    assert f"pgd_{key.prefix}" in page
    assert re.search(r'value="batch"[^>]*checked', page)
    values = {"label": "ci 2", "scopes": ["chat", "admin"], "tokens_per_minute": "500"}
    assert admin.post(f"/members/keys/{key.id}/", values).status_code == 302
    changed = authenticate_key(text)
    assert (changed.label, changed.scopes, changed.tokens_per_minute) == ("ci 2", ["chat", "admin"], 500)
    for wrong in ({"scopes": []}, {"scopes": ["root"]}, {"tokens_per_minute": "0"}, {"monthly_tokens": "9" * 30}):
        assert admin.post(f"/members/keys/{key.id}/", values | wrong).status_code == 422
    assert authenticate_key(text).label == "ci 2"


def test_a_key_is_rotated_with_an_overlap(admin, acme, rival):
    key, old = create_key(acme.tenant.id, "ci", created_by=acme.admin)
    response = admin.post(f"/members/keys/{key.id}/rotate", {"overlap": "24"}, follow=True)
    new = re.search(r"pgd_\w{8}_[\w-]{43}", response.content.decode())[0]
    assert new not in admin.get("/members/").content.decode()
    assert authenticate_key(new).label == "ci"
    assert authenticate_key(old) is not None
    page = admin.get(f"/members/keys/{key.id}/").content.decode()
    assert f"pgd_{authenticate_key(new).prefix}" in page
    assert "rotate-title" not in page
    again = admin.post(f"/members/keys/{key.id}/rotate", {"overlap": "0"}, follow=True)
    assert "not replaced yet" in again.content.decode()
    admin.post(f"/members/keys/{key.id}/rotate", {"overlap": "99999999"})
    assert ApiKey.across_tenants.count() == 2


def test_members_change_no_keys(client, acme):
    key, _ = create_key(acme.tenant.id, "ci", created_by=acme.admin)
    client.force_login(acme.member)
    for path in ("", "rotate", "revoke"):
        assert client.post(f"/members/keys/{key.id}/{path}", {"overlap": "0"}).status_code == 403
