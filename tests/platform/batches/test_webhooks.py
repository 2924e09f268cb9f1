"""Webhooks: who is told, how it is signed, what is sent again, and where nothing is ever sent."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from asking import read
from celery import current_app
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.core.exceptions import ValidationError
from django.utils import timezone
from lines import carried_out, lines
from openai import AsyncOpenAI, InvalidWebhookSignatureError

from pagoda.batches import pinned_post, public_address, webhooks
from pagoda.batches.models import Batch, Webhook, WebhookDelivery
from pagoda.batches.pinned_post import PostFailed, post
from pagoda.batches.public_address import AddressRefused, Target, is_public, parse, resolve
from pagoda.tenants.scoping import tenant_scope

HOST = "hooks.example"


class Hook:
    """A server that takes webhooks in: what it heard, and what it answers next (0: nothing, for a while)."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, str], str]] = []
        self.answers: list[int] = []
        self.released = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                hook.heard.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status = hook.answers.pop(0) if hook.answers else 204
                if status == 0:
                    hook.released.wait(30)
                    return
                self.send_response(status)
                if status in (301, 302, 307, 308):
                    self.send_header("location", f"http://{HOST}:{hook.port}/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/hook?a=b"


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """Listens under a public name: the only address that is looked up to this machine, and passes for public."""
    made = Hook()
    made.thread.start()
    lookup = socket.getaddrinfo

    def looked_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        return lookup("127.0.0.1" if host == HOST else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    monkeypatch.setattr(public_address, "is_public", lambda address: address == "127.0.0.1")
    monkeypatch.setattr(pinned_post, "TIMEOUT_S", 60.0)
    yield made
    made.released.set()
    made.server.shutdown()
    made.thread.join()
    made.server.server_close()


@pytest.fixture(autouse=True)
def sent_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tasks that would have gone to the broker by name."""
    names: list[str] = []
    monkeypatch.setattr(current_app, "send_task", names.append)
    return names


def webhook_of(party: Any, url: str) -> Webhook:
    with tenant_scope(party.tenant.pk):
        return Webhook.objects.create(tenant=party.tenant, url=url)


def ended_batch(party: Any, status: str = "completed") -> Batch:
    with tenant_scope(party.tenant.pk):
        batch = Batch.objects.create(
            tenant=party.tenant,
            endpoint="/v1/completions",
            input_file=party.tenant.pk,
            expires=timezone.now(),
            status=status,
            finished=timezone.now(),
        )
        webhooks.announce(batch)
        return batch


async def test_a_batch_that_ends_is_told_to_its_own_tenant_and_verified_by_openais_client(
    client: AsyncOpenAI, submit: Any, acme: Any, rival: Any, hook: Hook, sent_for: list[str]
) -> None:
    webhook = await read(webhook_of)(acme, hook.url)
    theirs = await read(webhook_of)(rival, hook.url + "&rival")
    batch = await carried_out(client, await submit(lines(2)))
    failed = await carried_out(client, await submit(["nonsense"]))
    assert sent_for == ["batches.send_webhooks"] * 2
    assert await read(webhooks.send_due)() == 2
    assert await read(webhooks.send_due)() == 0
    assert len(hook.heard) == 2
    hook.heard.sort(key=lambda heard: batch.id not in heard[1])
    events = [client.webhooks.unwrap(body, headers, secret=webhook.secret) for headers, body in hook.heard]
    told = [(event.type, event.data.id) for event in events]  # type: ignore[union-attr]
    assert told == [("batch.completed", batch.id), ("batch.failed", failed.id)]
    headers, body = hook.heard[0]
    assert headers["host"] == f"{HOST}:{hook.port}"
    assert headers["content-type"] == "application/json"
    assert headers["webhook-id"] == json.loads(body)["id"]
    for secret, changed in ((theirs.secret, body), (webhook.secret, body + " ")):
        with pytest.raises(InvalidWebhookSignatureError):
            client.webhooks.unwrap(changed, headers, secret=secret)


@pytest.mark.parametrize("status", ["expired", "cancelled"])
def test_every_end_has_its_event(acme: Any, hook: Hook, status: str) -> None:
    webhook_of(acme, hook.url)
    batch = ended_batch(acme, status)
    webhooks.send_due()
    event = json.loads(hook.heard[0][1])
    assert (event["type"], event["data"], event["object"]) == (f"batch.{status}", {"id": batch.public_id}, "event")


def test_what_is_not_taken_in_is_sent_again_later_and_later_and_then_given_up(acme: Any, hook: Hook) -> None:
    webhook_of(acme, hook.url)
    ended_batch(acme)
    hook.answers = [500, 404, 302, 307, 429, 400, 503, 599, 200]
    now = timezone.now()
    for wait in webhooks.BACKOFF_S:
        assert webhooks.send_due(now) == 1
        delivery = WebhookDelivery.across_tenants.get()
        assert delivery.due == now + timedelta(seconds=wait)
        assert webhooks.send_due(now + timedelta(seconds=wait - 1)) == 0
        now += timedelta(seconds=wait)
    assert webhooks.send_due(now) == 1
    delivery = WebhookDelivery.across_tenants.get()
    assert (delivery.due, delivery.delivered, delivery.result) == (None, None, "HTTP 599")
    assert webhooks.send_due(now + timedelta(days=365)) == 0
    assert len(hook.heard) == delivery.attempts == len(webhooks.BACKOFF_S) + 1
    assert len({headers["webhook-id"] for headers, _ in hook.heard}) == 1
    assert len({headers["webhook-timestamp"] for headers, _ in hook.heard}) == len(hook.heard)


def test_nothing_is_sent_twice_once_it_was_taken_in(acme: Any, hook: Hook) -> None:
    webhook_of(acme, hook.url)
    ended_batch(acme)
    hook.answers = [500]
    webhooks.send_due()
    later = timezone.now() + timedelta(minutes=1)
    assert webhooks.send_due(later) == 1
    delivery = WebhookDelivery.across_tenants.get()
    assert (delivery.due, delivery.result) == (None, "HTTP 204")
    assert webhooks.send_due(later + timedelta(days=1)) == 0


def test_addresses_that_do_not_answer_hold_up_neither_the_rivals_nor_the_worker(
    acme: Any, rival: Any, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned_post, "TIMEOUT_S", 3.0)
    silent = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    for listening in silent:
        webhook_of(acme, f"http://{HOST}:{listening.getsockname()[1]}/")
    for _ in range(10):
        ended_batch(acme)
    webhook_of(rival, hook.url)
    ended_batch(rival)
    begun = time.monotonic()
    assert webhooks.send_due() == webhooks.OF_A_TENANT + 1
    # One after the other, acme's alone would take twelve seconds.
    assert time.monotonic() - begun < 11.5
    assert len(hook.heard) == 1
    assert WebhookDelivery.across_tenants.get(tenant=rival.tenant).delivered is not None
    acmes = WebhookDelivery.across_tenants.filter(tenant=acme.tenant)
    assert acmes.filter(attempts=1, result="no answer within 3 seconds").count() == webhooks.OF_A_TENANT
    assert acmes.filter(attempts=0).count() == 30 - webhooks.OF_A_TENANT
    monkeypatch.setattr(webhooks, "LOOK_S", 0.0)
    assert webhooks.send_due() == 0
    for listening in silent:
        listening.close()


def test_an_inactive_webhook_hears_nothing(acme: Any, hook: Hook) -> None:
    webhook = webhook_of(acme, hook.url)
    ended_batch(acme)
    Webhook.across_tenants.filter(pk=webhook.pk).update(is_active=False)
    ended_batch(acme)
    assert WebhookDelivery.across_tenants.count() == 1
    webhooks.send_due()
    assert hook.heard == []


def test_a_server_that_does_not_answer_is_left(acme: Any, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_post, "TIMEOUT_S", 0.2)
    webhook_of(acme, hook.url)
    ended_batch(acme)
    hook.answers = [0]
    webhooks.send_due()
    assert "no answer" in WebhookDelivery.across_tenants.get().result


def test_a_server_that_answers_drop_by_drop_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_post, "TIMEOUT_S", 0.3)
    listening = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listening.accept()
        with connection:
            try:
                while True:
                    connection.sendall(b"H")
                    time.sleep(0.05)
            except OSError:
                return

    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(PostFailed, match="no answer"):
        post(Target(False, HOST, listening.getsockname()[1], "/"), "127.0.0.1", b"{}", {})
    thread.join()
    listening.close()


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "255.255.255.255", "224.0.0.1", "192.0.2.1", "198.18.0.1", "240.0.0.1"),
        *("::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001::1"),
        *("fe80::1%eth0", "nonsense"),
    ],
)
def test_an_address_that_is_not_public_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    assert not is_public(address)
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 443)) for each in ("1.1.1.1", address)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(AddressRefused):
        resolve(parse("https://hooks.example/"))


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_a_public_address_is_taken(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"])
def test_this_machine_is_never_called(acme: Any, host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        webhook_of(acme, f"http://{host}:{listening.getsockname()[1]}/")
        ended_batch(acme)
        webhooks.send_due()
        assert "address is not public" in WebhookDelivery.across_tenants.get().result
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_with_the_switch_a_developers_own_receiver_is_called(acme: Any, rival: Any, settings: Any, host: str) -> None:
    receiver = Hook()
    receiver.thread.start()
    try:
        webhook_of(acme, f"http://{host}:{receiver.port}/")
        webhook_of(rival, f"http://{host}:{receiver.port}/rival")
        ended_batch(acme)
        settings.PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES = True
        assert webhooks.send_due() == 1
    finally:
        receiver.server.shutdown()
        receiver.thread.join()
        receiver.server.server_close()
    assert WebhookDelivery.across_tenants.get().result == "HTTP 204"
    assert len(receiver.heard) == 1


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://hooks.example/", "file:///etc/passwd", "hooks.example", "http://", "https://a:b@hooks.example/"),
        *("http://hooks.example:99999/", "http://hooks.example/\r\nx: y", "http://hooks.example/a b", "http://[::1/"),
    ],
)
def test_what_is_no_address_on_the_web_is_not_taken(acme: Any, url: str) -> None:
    with tenant_scope(acme.tenant.pk), pytest.raises(ValidationError):
        Webhook(tenant=acme.tenant, url=url).full_clean()


def test_a_name_that_leads_elsewhere_a_moment_later_is_called_where_it_was_checked(
    acme: Any, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup = socket.getaddrinfo
    asked: list[Any] = []

    def first_here_then_there(host: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(host)
        return lookup("127.0.0.2" if asked.count(HOST) > 1 else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", first_here_then_there)
    webhook_of(acme, hook.url)
    ended_batch(acme)
    webhooks.send_due()
    assert asked.count(HOST) == 1
    assert len(hook.heard) == 1


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Files of a certificate for ``name``, signed by itself, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    no_encryption = serialization.NoEncryption()
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_encryption)
    )
    return paths


@pytest.mark.parametrize(("name", "works"), [(HOST, True), ("other.example", False)])
def test_the_certificate_must_be_the_names_though_the_address_is_pinned(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, works: bool
) -> None:
    chain, key = certificate(tmp_path, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    asked: list[str | None] = []
    context.sni_callback = lambda _, server_name, __: asked.append(server_name)
    hook.server.socket = context.wrap_socket(hook.server.socket, server_side=True)
    usual: Callable[..., ssl.SSLContext] = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda: usual(cafile=chain))
    target = parse(f"https://{HOST}:{hook.port}/hook")
    if works:
        assert post(target, resolve(target), b"{}", {}) == 204
    else:
        with pytest.raises(PostFailed, match="SSL"):
            post(target, resolve(target), b"{}", {})
    assert asked == [HOST]


def test_another_number_gives_another_secret(acme: Any) -> None:
    webhook = webhook_of(acme, "https://hooks.example/")
    first = webhook.secret
    assert first.startswith("whsec_")
    assert webhook.secret == first
    webhook.secret_number = 2
    assert webhook.secret != first
