"""/healthz, /readyz and /metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client

from pagoda.engines import reports
from pagoda.operations.demo_accounts import ensure_demo_accounts
from pagoda.tenants.models import Tenant
from pagoda_inference.protocol import AccountReport, PoolReport

pytestmark = pytest.mark.django_db

ENGINE = "unix:/run/engine.sock"
OPERATIONS = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()


def account(name: str) -> AccountReport:
    return AccountReport(
        id=name, active=3, cached=4, shared=1, reservation=10, limit=50, weight=1.0, reserved_unused=3, running=1,
        waiting=2, hit_tokens=96, queried_tokens=132, tokens_in=132, tokens_out=40, evictions={"own_lru": 5},
        evicted_by={}, preemptions={"recompute": 1}, queue_wait_s=0.5,
    )  # fmt: skip


@pytest.fixture
def engine(settings):
    """An engine that this process watches; whatever the test says it reported."""
    settings.PAGODA_ENGINES = [ENGINE]
    reports.forget_all()
    yield ENGINE
    reports.forget_all()


@pytest.fixture
def pool(engine: str, home: Path) -> None:
    ensure_demo_accounts(home)
    accounts = tuple(account(tenant.account) for tenant in Tenant.objects.all())
    reports.remember(
        engine,
        PoolReport(
            instance="i", step=9, time=0.0, total=100, free=100 - 7 * len(accounts), block_size=16,
            bytes_per_block=368640, accounts_version=1, accounts=accounts,
        ),
    )  # fmt: skip


def test_healthz_says_that_the_process_is_up(client: Client) -> None:
    assert client.get("/healthz").json() == {"status": "up"}


def test_readyz_is_503_with_the_reason_while_no_engine_is_reachable(client: Client, engine: str) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "checks": {
            "database": {"ok": True, "detail": "answers"},
            "engines": {"ok": False, "detail": "0 of 1 reachable"},
        },
    }


def test_readyz_is_200_once_an_engine_is_reachable(client: Client, engine: str) -> None:
    reports.mark_reachable(engine)
    assert client.get("/readyz").status_code == 200


def test_readyz_shows_nobody_an_address(client: Client, engine: str) -> None:
    assert ENGINE.removeprefix("unix:") not in client.get("/readyz").content.decode()


def test_metrics_name_the_tenants_and_add_up(client: Client, pool: None) -> None:
    text = client.get("/metrics").content.decode()
    for slug in ("acme", "globex", "rival"):
        assert f'pagoda_account_active_blocks{{engine="{ENGINE}",tenant="{slug}"}} 3.0' in text

    def total(name: str) -> float:
        return sum(float(value) for value in re.findall(rf"^{name}{{.*}} (\S+)$", text, re.M))

    held = total("pagoda_account_active_blocks") + total("pagoda_account_cached_blocks")
    assert held + total("pagoda_pool_free_blocks") == total("pagoda_pool_blocks")


def test_metrics_are_for_this_machine(client: Client) -> None:
    assert client.get("/metrics", REMOTE_ADDR="::1").status_code == 200
    assert client.get("/metrics", REMOTE_ADDR="203.0.113.9").status_code == 403
    assert client.get("/metrics", REMOTE_ADDR="").status_code == 403


def test_with_a_token_only_the_token_counts(client: Client, settings) -> None:
    settings.PAGODA_METRICS_TOKEN = "s3cret"
    assert client.get("/metrics", REMOTE_ADDR="127.0.0.1").status_code == 403
    assert client.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 403
    assert (
        client.get("/metrics", REMOTE_ADDR="203.0.113.9", headers={"Authorization": "Bearer s3cret"}).status_code == 200
    )


def test_every_metric_is_documented(client: Client, pool: None) -> None:
    """By its name, or for the libraries' own by the first words of it (`django_http_*`)."""
    client.get("/healthz")
    names = re.findall(r"^# TYPE (\S+) ", client.get("/metrics").content.decode(), re.M)
    documented = re.findall(r"^\| `([a-z_]+)(\*?)` +\|", OPERATIONS, re.M)
    exact = {name for name, star in documented if not star}
    families = tuple(name for name, star in documented if star)
    assert any(name.startswith("pagoda_") for name in names)
    missing = [name for name in names if name not in exact and not (families and name.startswith(families))]
    assert not missing
    assert not [name for name in exact if name.startswith("pagoda_") and name not in names], "documented, but gone"
