"""The demo accounts: made once, shown again, never readable by others."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from pagoda.operations.demo_accounts import credentials_path, ensure_demo_accounts, known_accounts
from pagoda.tenants.keys import authenticate_key
from pagoda.tenants.models import ApiKey, Membership, Tenant, User

pytestmark = pytest.mark.django_db


def told(*arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out, **options)
    return out.getvalue()


def test_demo_json_has_exactly_what_scripts_rely_on() -> None:
    demo = json.loads(told("demo", "--json"))
    assert set(demo) == {"url", "ws_url", "api_base", "model", "operator", "tenants"}
    assert set(demo["operator"]) == {"email", "password"}
    assert [tenant["slug"] for tenant in demo["tenants"]] == ["acme", "globex"]
    for tenant in demo["tenants"]:
        assert set(tenant) == {"slug", "members", "api_keys"}
        assert [set(member) for member in tenant["members"]] == [{"email", "password", "role"}] * 2
        assert [member["role"] for member in tenant["members"]] == ["member", "admin"]
        assert all(set(key) == {"key", "label"} for key in tenant["api_keys"])
    assert len(demo["tenants"][0]["api_keys"]) == 2


def test_the_logins_and_keys_work_and_belong_to_their_tenant_alone(home: Path) -> None:
    demo = ensure_demo_accounts(home)
    operator = User.objects.get(email=demo["operator"]["email"])
    assert operator.check_password(demo["operator"]["password"])
    assert operator.is_staff
    assert operator.is_superuser
    for entry in demo["tenants"]:
        tenant = Tenant.objects.get(slug=entry["slug"])
        for member in entry["members"]:
            user = User.objects.get(email=member["email"])
            assert user.check_password(member["password"])
            assert not user.is_staff
            assert list(Membership.across_tenants.filter(user=user).values_list("tenant_id", "role")) == [
                (tenant.id, member["role"])
            ]
        for key in entry["api_keys"]:
            found = authenticate_key(key["key"])
            assert found is not None
            assert found.tenant_id == tenant.id
            assert found.label == key["label"]


def test_the_second_time_changes_nothing(home: Path) -> None:
    first = ensure_demo_accounts(home)
    rows = User.objects.count(), Tenant.objects.count(), ApiKey.across_tenants.count()
    assert ensure_demo_accounts(home) == first
    assert (User.objects.count(), Tenant.objects.count(), ApiKey.across_tenants.count()) == rows


def test_a_lost_database_gets_the_same_passwords_again(home: Path) -> None:
    first = ensure_demo_accounts(home)
    Tenant.objects.all().delete()
    User.objects.all().delete()
    again = ensure_demo_accounts(home)
    assert again["operator"] == first["operator"]
    assert again["tenants"][0]["members"] == first["tenants"][0]["members"]
    assert authenticate_key(again["tenants"][0]["api_keys"][0]["key"]) is not None


def test_a_deleted_tenant_stays_deleted_and_is_no_longer_shown(home: Path) -> None:
    first = ensure_demo_accounts(home)
    Tenant.objects.get(slug="acme").delete()
    assert known_accounts(home) == first | {"tenants": first["tenants"][1:]}, "what `up` shows"
    for _ in range(2):
        demo = json.loads(told("demo", "--json"))
        assert [tenant["slug"] for tenant in demo["tenants"]] == ["globex"]
        assert demo["tenants"] == first["tenants"][1:]
    assert not Tenant.objects.filter(slug="acme").exists()


def test_a_new_tenant_of_a_deleted_ones_name_is_left_alone(home: Path) -> None:
    ensure_demo_accounts(home)
    Tenant.objects.get(slug="acme").delete()
    ensure_demo_accounts(home)
    real = Tenant.objects.create(slug="acme", name="The real Acme")
    ensure_demo_accounts(home)
    assert not ApiKey.across_tenants.filter(tenant=real).exists()
    assert not Membership.across_tenants.filter(tenant=real).exists()


def test_deleted_people_stay_deleted(home: Path) -> None:
    ensure_demo_accounts(home)
    User.objects.filter(email__in=["operator@pagoda.example", "ada@acme.example"]).delete()
    demo = ensure_demo_accounts(home)
    assert demo["operator"] is None
    assert [member["email"] for member in demo["tenants"][0]["members"]] == ["alan@acme.example"]
    assert "ada@acme.example" not in told("demo")
    assert not User.objects.filter(email__in=["operator@pagoda.example", "ada@acme.example"]).exists()


def test_where_all_were_deleted_the_command_says_so(home: Path) -> None:
    ensure_demo_accounts(home)
    Tenant.objects.filter(slug__in=["acme", "globex"]).delete()
    User.objects.filter(email__endswith="example").exclude(email__endswith="rival.example").delete()
    assert "were deleted" in told("demo")
    assert json.loads(told("demo", "--json"))["tenants"] == []


def test_a_changed_password_and_a_revoked_key_are_replaced(home: Path) -> None:
    first = ensure_demo_accounts(home)
    user = User.objects.get(email="ada@acme.example")
    user.set_password("something else")
    user.save()
    ApiKey.across_tenants.filter(tenant__slug="acme", label="app").update(revoked=timezone.now())
    again = ensure_demo_accounts(home)
    assert User.objects.get(email="ada@acme.example").check_password(again["tenants"][0]["members"][0]["password"])
    keys = {entry["label"]: entry["key"] for entry in again["tenants"][0]["api_keys"]}
    before = {entry["label"]: entry["key"] for entry in first["tenants"][0]["api_keys"]}
    assert authenticate_key(keys["app"]) is not None
    assert (keys["app"] != before["app"], keys["batch"]) == (True, before["batch"])


def test_nobody_else_can_read_the_file(home: Path) -> None:
    ensure_demo_accounts(home)
    assert credentials_path(home).stat().st_mode & 0o777 == 0o600


def test_key_create_makes_a_key_of_that_tenant_and_not_of_its_rival(home: Path) -> None:
    ensure_demo_accounts(home)
    made = json.loads(told("key_create", "--tenant", "acme", "--requests-per-minute", "7", "--json"))
    key = authenticate_key(made["key"])
    assert key is not None
    assert (key.tenant.slug, key.requests_per_minute) == ("acme", 7)


def test_key_create_for_an_unknown_tenant_names_those_there_are(home: Path) -> None:
    with pytest.raises(CommandError, match=r"no tenant 'nobody'.*rival"):
        told("key_create", "--tenant", "nobody", "--json")
