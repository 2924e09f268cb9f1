"""An invitation lets one person in, once."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from pagoda.tenants import invitations
from pagoda.tenants.models import AuditEntry, Invitation, Membership, Role, User

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"
NEW = {"name": "Eve", "password": "staple-battery-9"}


def invite(party, email="new@acme.example", role=Role.MEMBER):
    invitation, link = invitations.invite(party.tenant.id, email, role, invited_by=party.admin)
    return invitation, link.removeprefix("http://127.0.0.1:8000")


def role_of(email, party):
    rows = Membership.across_tenants.filter(tenant=party.tenant, user__email=email)
    return rows.values_list("role", flat=True).first()


def test_a_new_person_makes_an_account_and_joins(acme, rival, client):
    _, path = invite(acme, role=Role.ADMIN)
    assert client.get(path).status_code == 200
    response = client.post(path, NEW)
    assert (response.status_code, response["Location"]) == (302, "/")
    assert role_of("new@acme.example", acme) == Role.ADMIN
    assert role_of("new@acme.example", rival) is None
    assert client.session["_auth_user_id"] == str(User.objects.get(email="new@acme.example").pk)


def test_a_link_works_once(acme, client):
    _, path = invite(acme)
    client.post(path, NEW)
    client.logout()
    assert client.get(path).status_code == 410
    assert client.post(path, NEW).status_code == 410


def test_a_revoked_or_expired_link_is_closed(acme, client):
    invitation, path = invite(acme)
    invitations.revoke(invitation, who=acme.admin)
    assert client.get(path).status_code == 410
    invitation, path = invite(acme)
    Invitation.across_tenants.filter(pk=invitation.pk).update(expires=timezone.now() - timedelta(seconds=1))
    assert client.get(path).status_code == 410
    assert client.get("/invitations/unknown/").status_code == 410


def test_a_suspended_tenants_link_is_closed(acme, client):
    _, path = invite(acme)
    acme.tenant.is_active = False
    acme.tenant.save()
    assert client.get(path).status_code == 410


def test_a_new_invitation_closes_the_older_link(acme, client):
    _, old = invite(acme)
    _, new = invite(acme)
    assert client.get(old).status_code == 410
    assert client.get(new).status_code == 200


def test_the_same_address_can_be_invited_by_a_rival_too(acme, rival, client):
    _, path = invite(acme)
    invite(rival)
    assert client.get(path).status_code == 200


def test_somebody_with_an_account_signs_in_and_keeps_the_password(acme, rival, client):
    _, path = invite(acme, rival.member.email)
    response = client.post(path, NEW)
    assert "Sign in to join" in response.content.decode()
    rival.member.refresh_from_db()
    assert rival.member.check_password(PASSWORD)
    client.force_login(rival.member)
    assert role_of(rival.member.email, acme) is None
    assert client.get(path).status_code == 200
    assert client.post(path).status_code == 302
    assert role_of(rival.member.email, acme) == Role.MEMBER


def test_somebody_elses_link_is_refused(acme, rival, client):
    _, path = invite(acme)
    client.force_login(rival.member)
    assert client.post(path).status_code == 403
    assert role_of(rival.member.email, acme) is None
    with pytest.raises(invitations.InvitationRefused):
        invitations.accept(Invitation.across_tenants.get(), rival.member)


def test_a_weak_password_is_refused(acme, client):
    _, path = invite(acme)
    response = client.post(path, {"name": "Eve", "password": "12345"})
    assert response.status_code == 422
    assert not User.objects.filter(email="new@acme.example").exists()


def test_the_token_is_nowhere_in_the_database(acme):
    _, path = invite(acme)
    token = re.fullmatch(r"/invitations/(.+)/", path)[1]
    assert token not in str(Invitation.across_tenants.values()) + str(AuditEntry.across_tenants.values())


def test_a_member_is_not_invited_again(acme):
    with pytest.raises(invitations.InvitationRefused, match="member already"):
        invite(acme, "  Member@ACME.example ")


def test_an_invitation_is_mailed_where_there_is_a_server(acme, settings, mailoutbox):
    invitation, link = invite(acme)
    assert invitations.send(invitation, link) is False
    settings.PAGODA_SMTP_URL = "smtp://mail.example"
    assert invitations.send(invitation, link) is True
    assert link in mailoutbox[0].body
    assert mailoutbox[0].to == ["new@acme.example"]
