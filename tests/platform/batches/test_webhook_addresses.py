"""Addresses of webhooks: refused where nothing could ever be sent, unless a developer has switched that off."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client

from pagoda.batches import public_address
from pagoda.batches.models import Webhook
from pagoda.batches.public_address import AddressRefused, may_be_called, parse, resolve
from pagoda.tenants.scoping import tenant_scope

SWITCH = "PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES"
PRIVATE = ["127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "::1", "fd12::1"]
NEVER = ["169.254.169.254", "fe80::1", "fd00:ec2::254", "224.0.0.1", "0.0.0.0", "100.64.0.1", "::ffff:127.0.0.1"]
"""Also for developers: clouds' credentials, groups, disguises."""


@pytest.fixture
def desk(operator: Any) -> Client:
    client = Client()
    client.force_login(operator)
    return client


@pytest.fixture(autouse=True)
def no_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saving asks no name server."""

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"looked up {args}")

    monkeypatch.setattr(socket, "getaddrinfo", refused)


def form(party: Any, url: str, **fields: str) -> dict[str, str]:
    return {"tenant": str(party.tenant.pk), "url": url, "is_active": "on", "secret_number": "1"} | fields


@pytest.mark.parametrize(
    "host",
    [
        *(
            "127.0.0.1:18199",
            "169.254.169.254",
            "[::1]",
            "10.1.2.3",
            "192.168.0.9:8443",
            "[fe80::1]",
            "[::ffff:10.0.0.1]",
        ),
        *("localhost:8000", "LOCALHOST", "localhost.", "hooks.localhost", "2130706433", "0x7f.1", "0177.0.0.1", "0"),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_address_that_can_never_be_called_is_refused_with_the_reason_and_the_way_out(
    desk: Client, acme: Any, rival: Any, host: str, scheme: str
) -> None:
    answer = desk.post("/admin/batches/webhook/add/", form(acme, f"{scheme}://{host}/hook"))
    assert answer.status_code == 200
    (error,) = answer.context["adminform"].form.errors["url"]
    assert "only public addresses are called" in error
    assert SWITCH in error
    assert not Webhook.across_tenants.exists()


@pytest.mark.parametrize(
    "host", ["hooks.example", "1.1.1.1", "[2606:4700:4700::1111]:8443", "localhost.example", "10.example"]
)
def test_others_are_taken_and_no_name_is_looked_up(desk: Client, acme: Any, rival: Any, host: str) -> None:
    assert desk.post("/admin/batches/webhook/add/", form(acme, f"https://{host}/hook")).status_code == 302
    assert Webhook.across_tenants.get().tenant == acme.tenant


def test_one_from_before_can_be_switched_off_and_not_on_again(desk: Client, acme: Any, rival: Any) -> None:
    url = "http://127.0.0.1:9/"
    with tenant_scope(acme.tenant.pk):
        webhook = Webhook.objects.create(tenant=acme.tenant, url=url)
    address = f"/admin/batches/webhook/{webhook.pk}/change/"
    off = form(acme, url)
    del off["is_active"]
    assert desk.post(address, off).status_code == 302
    assert desk.post(address, form(acme, url)).status_code == 200
    assert not Webhook.across_tenants.get().is_active


def resolved_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> str:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 443)) for each in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    return resolve(parse("https://hooks.example/"))


@pytest.mark.parametrize("address", PRIVATE)
def test_developers_may_call_private_addresses_and_only_with_the_switch(
    monkeypatch: pytest.MonkeyPatch, settings: Any, acme: Any, address: str
) -> None:
    host = f"[{address}]" if ":" in address else address
    webhook = Webhook(tenant=acme.tenant, url=f"http://{host}:8000/")
    assert settings.PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES is False
    with tenant_scope(acme.tenant.pk), pytest.raises(ValidationError):
        webhook.full_clean()
    with pytest.raises(AddressRefused):
        resolved_to(monkeypatch, address)
    settings.PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES = True
    with tenant_scope(acme.tenant.pk):
        webhook.full_clean()
    assert resolved_to(monkeypatch, address) == address


@pytest.mark.parametrize("address", NEVER)
def test_the_switch_opens_neither_link_local_addresses_nor_disguises(
    monkeypatch: pytest.MonkeyPatch, settings: Any, address: str
) -> None:
    settings.PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES = True
    assert not may_be_called(address)
    with pytest.raises(AddressRefused):
        resolved_to(monkeypatch, "127.0.0.1", address)


def test_what_the_switch_opens_is_refused_without_it() -> None:
    assert not any(public_address.is_public(address) for address in (*PRIVATE, *NEVER))


@pytest.mark.parametrize(
    "cluster", [{"REDIS_URL": "redis://cache:6379/0"}, {"DATABASE_URL": "postgresql://u:p@db:5432/pagoda"}]
)
def test_a_cluster_does_not_start_with_the_switch(tmp_path: Path, cluster: dict[str, str]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PAGODA_", "DATABASE", "REDIS"))}

    def start(**variables: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-c",
            "import pagoda.settings as s; print(s.PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES)",
        ]
        environ = clean | {"PAGODA_HOME": str(tmp_path)} | variables
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    refused = start(**{SWITCH: "1"}, **cluster)
    assert refused.returncode != 0
    assert f"{SWITCH} is for development on one machine" in refused.stderr
    assert start(**cluster).stdout == "False\n"
    assert start(**{SWITCH: "1"}).stdout == "True\n"
