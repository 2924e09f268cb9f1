"""docker-compose.yml, read: what it starts exists, and what it promises fits the rest."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from sources import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WEB = {"migrate", "web", "worker", "beat"}


def test_the_services_are_those_of_the_documentation() -> None:
    assert set(SERVICES) == {"postgres", "redis", "engine"} | WEB


@pytest.mark.parametrize("service", ["engine", *sorted(WEB)])
def test_dockerfiles_exist_and_copy_what_exists(service: str) -> None:
    dockerfile = ROOT / SERVICES[service]["build"]["dockerfile"]
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile.read_text(), re.M):
        for path in source.split():
            assert (ROOT / path).exists(), path


def test_only_the_engine_has_torch_and_only_the_web_tier_has_django() -> None:
    assert "'.[web]'" in (ROOT / "docker/web.Dockerfile").read_text()
    assert "'.[engine]'" in (ROOT / "docker/engine.Dockerfile").read_text()


def test_every_dependency_and_volume_is_declared() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in SERVICES, f"{name} depends on {other}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other], f"{name} waits for {other}'s health"
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in COMPOSE["volumes"]


def test_migrations_are_done_before_anything_uses_the_database() -> None:
    for name in WEB - {"migrate"}:
        assert SERVICES[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"


def test_both_sides_of_the_wire_share_address_and_token() -> None:
    engine, web = SERVICES["engine"]["environment"], SERVICES["web"]["environment"]
    assert web["PAGODA_ENGINES"] == "engine:" + engine["PAGODA_ENGINE_ADDRESS"].rpartition(":")[2]
    assert web["PAGODA_ENGINE_TOKEN"] == engine["PAGODA_ENGINE_TOKEN"]


def test_no_secret_has_a_default() -> None:
    example = (ROOT / ".env.example").read_text()
    for name in ("POSTGRES_PASSWORD", "PAGODA_SECRET_KEY", "PAGODA_ENGINE_TOKEN"):
        uses = re.findall(rf"\${{{name}(.*?)}}", (ROOT / "docker-compose.yml").read_text())
        assert uses
        assert all(use.startswith(":?") for use in uses), name
        assert re.search(rf"^{name}=$", example, re.M), name


def test_settings_named_in_compose_are_documented() -> None:
    documents = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    for service in SERVICES.values():
        for name in service.get("environment", {}):
            if name.startswith("PAGODA_") or name.endswith("_URL"):
                assert f"`{name}`" in documents, name
