"""The page of the chat, and what operators see of conversations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from pagoda.chat.models import Conversation, Message
from pagoda.generations.models import Generation
from pagoda.tenants.models import Membership, User


@pytest.fixture
def built(settings: Any, tmp_path: Path) -> None:
    """A front end that is built, as far as the page can tell."""
    from django_vite.core.asset_loader import DjangoViteAssetLoader

    manifest = {"src/main.ts": {"file": "assets/main-abc123.js", "src": "src/main.ts", "isEntry": True, "css": []}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    settings.PAGODA_FRONTEND_DIST = tmp_path
    settings.DJANGO_VITE = {"default": {"manifest_path": tmp_path / "manifest.json"}}
    DjangoViteAssetLoader._instance = None


def boot_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="pagoda-boot" type="application/json">(.*?)</script>', page)
    assert found is not None
    boot: dict[str, Any] = json.loads(found[1])
    return boot


@pytest.mark.django_db
def test_a_visitor_signs_in_first(client: Client) -> None:
    response = client.get("/")
    assert response.status_code == 302
    assert response["Location"] == f"{reverse('account_login')}?next=/"


@pytest.mark.django_db
def test_a_member_gets_the_shell_under_a_strict_policy(client: Client, acme: Any, built: None) -> None:
    client.force_login(acme.member)
    response = client.get("/")
    page = response.content.decode()
    policy = response["Content-Security-Policy"]
    assert response.status_code == 200
    assert "script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    assert '<script type="module"' in page
    assert "assets/main-abc123.js" in page
    assert "no-store" in response["Cache-Control"]
    boot = boot_of(page)
    assert boot["ws_path"] == "/ws/v1"
    assert boot["member"]["email"] == "member@acme.example"
    assert boot["tenant"]["slug"] == "acme"
    assert boot["csrf_token"]
    assert boot["members_url"] is boot["admin_url"] is None
    assert set(re.findall(r"<script[^>]*>", page)) == {
        '<script type="module" crossorigin="" src="/static/assets/main-abc123.js">',
        '<script id="pagoda-boot" type="application/json">',
    }


@pytest.mark.django_db
def test_what_a_name_contains_cannot_leave_the_page_data(client: Client, acme: Any, built: None) -> None:
    acme.member.name = "</script><script>alert(1)</script>"
    acme.member.save()
    client.force_login(acme.member)
    page = client.get("/").content.decode()
    assert "<script>alert" not in page
    assert boot_of(page)["member"]["name"] == acme.member.name


@pytest.mark.django_db
def test_a_tenants_admin_finds_the_way_to_its_members(client: Client, acme: Any, built: None) -> None:
    client.force_login(acme.admin)
    assert boot_of(client.get("/").content.decode())["members_url"] == reverse("members")


@pytest.mark.django_db
def test_an_operator_without_a_tenant_is_sent_to_the_admin(client: Client, operator: User) -> None:
    client.force_login(operator)
    assert client.get("/")["Location"] == reverse("admin:index")


@pytest.mark.django_db
def test_somebody_without_a_tenant_is_told_so(client: Client, acme: Any) -> None:
    Membership.across_tenants.filter(user=acme.member).delete()
    client.force_login(acme.member)
    assert client.get("/").status_code == 403


@pytest.mark.django_db
def test_a_front_end_that_is_not_built_is_said_to_be(client: Client, acme: Any, settings: Any, tmp_path: Path) -> None:
    settings.PAGODA_FRONTEND_DIST = tmp_path
    client.force_login(acme.member)
    response = client.get("/")
    assert response.status_code == 503
    assert "make" in response.content.decode()


@pytest.mark.django_db
def test_an_operator_sees_what_there_is_and_never_a_text(client: Client, operator: User, acme: Any) -> None:
    row = Conversation.across_tenants.create(tenant=acme.tenant, owner=acme.member, title="Secret title")
    generation = Generation.across_tenants.create(
        tenant=acme.tenant,
        engine="unix:/x",
        text="secret answer",
        request={"messages": [{"content": "secret question"}]},
        prompt_tokens=4321,
    )
    Message.across_tenants.create(tenant=acme.tenant, conversation=row, role="user", content="secret question")
    client.force_login(operator)
    pages = [
        client.get(reverse("admin:chat_conversation_changelist")),
        client.get(reverse("admin:chat_conversation_change", args=[row.pk])),
        client.get(reverse("admin:generations_generation_changelist")),
        client.get(reverse("admin:generations_generation_change", args=[generation.pk])),
    ]
    texts = [page.content.decode() for page in pages]
    assert [page.status_code for page in pages] == [200] * 4
    assert str(row.pk) in texts[0]
    assert "member@acme.example" in texts[1]
    assert "4321" in texts[2].replace(",", "")
    assert not any("ecret" in text for text in texts)


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["chat_conversation", "generations_generation"])
def test_an_operator_cannot_add_or_change(client: Client, operator: User, name: str) -> None:
    client.force_login(operator)
    assert client.get(reverse(f"admin:{name}_add")).status_code == 403
