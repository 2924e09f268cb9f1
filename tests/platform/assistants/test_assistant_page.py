"""`/assistant/`: a tenant's admin sets the assistant of their own tenant, and of no other."""

from __future__ import annotations

import html

import pytest

from pagoda.assistants import models
from pagoda.assistants.models import Assistant, PublishedPrefix
from pagoda.chat.models import Conversation
from pagoda.generations.models import PendingPurge
from pagoda.tenants.models import AuditEntry, Membership, Role
from pagoda.tenants.scoping import tenant_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(acme, client):
    client.force_login(acme.admin)
    return client


@pytest.fixture
def librarian():
    return PublishedPrefix.objects.create(name="Librarian", text="You are a librarian.")


def assistant_of(party):
    return Assistant.across_tenants.filter(tenant=party.tenant).first()


def system_text_of(party):
    with tenant_scope(party.tenant.pk):
        return models.system_text()


def test_strangers_sign_in_and_members_and_operators_are_refused(client, acme, operator):
    assert client.get("/assistant/")["Location"] == "/accounts/login/?next=/assistant/"
    for person in (acme.member, operator):
        client.force_login(person)
        assert client.get("/assistant/").status_code == 403


def test_a_text_of_its_own_is_the_tenants_alone(admin, client, acme, rival):
    response = admin.post("/assistant/", {"prefix": "", "text": "You speak like a pirate."}, follow=True)
    assert "Conversations that begin from now on begin with it." in html.unescape(response.content.decode())
    assert system_text_of(acme) == "You speak like a pirate."
    assert system_text_of(rival) == ""
    assert assistant_of(acme).changed_by == acme.admin
    client.force_login(rival.admin)
    assert "pirate" not in client.get("/assistant/").content.decode()


def test_the_change_is_audited_without_its_text(admin, acme, librarian):
    admin.post("/assistant/", {"prefix": str(librarian.pk), "text": "Be brief."})
    entry = AuditEntry.across_tenants.get(what="assistant.changed")
    assert (entry.who, entry.tenant) == (acme.admin, acme.tenant)
    assert entry.details == {"prefix": "Librarian", "characters": 9}


def test_the_published_text_comes_first_and_unchanged(admin, acme, librarian):
    admin.post("/assistant/", {"prefix": str(librarian.pk), "text": ""})
    assert system_text_of(acme) == librarian.text
    admin.post("/assistant/", {"prefix": str(librarian.pk), "text": "Be brief."})
    assert system_text_of(acme) == f"{librarian.text}\n\nBe brief."


def test_a_withdrawn_prefix_is_not_offered_but_kept_by_who_chose_it(admin, client, acme, rival, librarian):
    admin.post("/assistant/", {"prefix": str(librarian.pk), "text": ""})
    librarian.active = False
    librarian.save()
    assert system_text_of(acme) == librarian.text
    assert admin.post("/assistant/", {"prefix": str(librarian.pk), "text": ""}).status_code == 302
    client.force_login(rival.admin)
    assert "Librarian" not in client.get("/assistant/").content.decode()
    assert client.post("/assistant/", {"prefix": str(librarian.pk), "text": ""}).status_code == 422
    assert assistant_of(rival) is None


def test_who_administers_two_tenants_chooses(admin, acme, rival):
    Membership.across_tenants.create(tenant=rival.tenant, user=acme.admin, role=Role.ADMIN)
    admin.get("/assistant/?tenant=rival")
    admin.post("/assistant/", {"prefix": "", "text": "For the rival."})
    assert (system_text_of(acme), system_text_of(rival)) == ("", "For the rival.")


def test_an_operator_sets_any_tenants_assistant(client, operator, acme, rival, librarian):
    client.force_login(operator)
    fields = {"tenant": str(acme.tenant.pk), "prefix": str(librarian.pk), "text": ""}
    assert client.post("/admin/assistants/assistant/add/", fields).status_code == 302
    assert system_text_of(acme) == librarian.text
    page = client.get("/admin/assistants/assistant/").content.decode()
    assert "Acme" in page
    client.post(f"/admin/assistants/assistant/{acme.tenant.pk}/change/", {"prefix": "", "text": "Be brief."})
    assert (system_text_of(acme), system_text_of(rival)) == ("Be brief.", "")
    client.post(f"/admin/assistants/assistant/{acme.tenant.pk}/delete/", {"post": "yes"})
    assert system_text_of(acme) == ""
    kinds = AuditEntry.across_tenants.filter(tenant=acme.tenant, who=operator).values_list("what", flat=True)
    assert sorted(kinds) == ["assistant.changed", "assistant.changed", "assistant.deleted"]


def test_too_long_a_text_is_refused(admin, acme):
    response = admin.post("/assistant/", {"prefix": "", "text": "x" * 50_001})
    assert response.status_code == 422
    assert assistant_of(acme) is None


def test_deleting_a_tenant_in_the_admin_takes_its_assistant_and_conversations(client, operator, acme, rival, librarian):
    client.force_login(operator)
    for party in (acme, rival):
        Assistant.across_tenants.create(tenant=party.tenant, prefix=librarian, text="Be brief.")
        Conversation.across_tenants.create(tenant=party.tenant, owner=party.member, system_text="Be brief.")
    page = f"/admin/tenants/tenant/{acme.tenant.pk}/delete/"
    assert client.get(page).status_code == 200
    assert client.post(page, {"post": "yes"}).status_code == 302
    assert (assistant_of(acme), assistant_of(rival).text) == (None, "Be brief.")
    assert Conversation.across_tenants.count() == 1
    assert not PendingPurge.objects.exists()
