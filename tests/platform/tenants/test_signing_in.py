"""Sign-in by e-mail; sign-up is closed; guessing is slowed down."""

import pytest
from django.core.cache import cache

from pagoda.tenants.models import User

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def fresh_limits():
    cache.clear()
    yield
    cache.clear()


def sign_in(client, email, password=PASSWORD):
    return client.post("/accounts/login/", {"login": email, "password": password})


def test_people_sign_in_with_their_address_in_any_case(acme, client):
    response = sign_in(client, "Member@Acme.example")
    assert (response.status_code, response["Location"]) == (302, "/")


def test_a_wrong_password_and_an_unknown_address_look_alike(acme, client):
    wrong = sign_in(client, acme.member.email, "not the password")
    unknown = sign_in(client, "nobody@acme.example", "not the password")
    assert wrong.status_code == unknown.status_code == 200
    assert wrong.context["form"].errors == unknown.context["form"].errors


def test_guessing_is_slowed_down(acme, client):
    for _ in range(6):
        sign_in(client, acme.member.email, "guess")
    response = sign_in(client, acme.member.email)
    assert response.status_code != 302
    assert "Too many failed" in response.content.decode()


def test_sign_up_is_closed(client):
    assert "Ask your organisation" in client.get("/accounts/signup/").content.decode()
    client.post("/accounts/signup/", {"email": "new@acme.example", "password1": "staple-battery-9"})
    assert not User.objects.filter(email="new@acme.example").exists()


def test_an_address_cannot_be_changed(acme, client):
    client.force_login(acme.member)
    assert client.get("/accounts/email/").status_code == 404
    assert client.post("/accounts/email/", {"email": "other@acme.example", "action_add": ""}).status_code == 404


def test_the_password_can_be_changed(acme, client):
    client.force_login(acme.member)
    assert client.get("/accounts/password/change/").status_code == 200
    new = {"oldpassword": PASSWORD, "password1": "staple-battery-9", "password2": "staple-battery-9"}
    client.post("/accounts/password/change/", new)
    acme.member.refresh_from_db()
    assert acme.member.check_password("staple-battery-9")


@pytest.mark.parametrize("page", ["/accounts/login/", "/accounts/password/reset/", "/accounts/signup/", "/nowhere/"])
def test_pages_speak_korean_and_run_under_a_strict_policy(client, page):
    response = client.get(page, headers={"accept-language": "ko"})
    assert '<html lang="ko">' in response.content.decode()
    policy = response["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    assert "<script>" not in response.content.decode()


def test_signing_in_leaves_no_message_for_a_later_page(acme, rival, client):
    client.post("/accounts/login/", {"login": acme.admin.email, "password": "correct horse battery"})
    page = client.get("/members/")
    assert page.status_code == 200
    assert [str(message) for message in page.context["messages"]] == []
