"""Two tenants in every test of the platform: whatever is done for one must not be seen by its rival."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connections

from pagoda.tenants.models import Membership, Role, Tenant, User

PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Party:
    """A tenant with its admin and one member."""

    tenant: Tenant
    admin: User
    member: User


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A database of this run alone. SQLite in a file: threads lock each other out of a shared in-memory one."""
    connection = connections["default"]
    if connection.vendor == "sqlite":
        name = str(tmp_path_factory.mktemp("database") / "test.sqlite3")
    else:
        name = f"test_pagoda_{os.getpid()}"
    connection.settings_dict["TEST"]["NAME"] = name


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is written outside the test's own folder, and passwords are hashed fast."""
    monkeypatch.setattr(settings, "PAGODA_HOME", tmp_path / "home")
    # Never an engine that happens to run on this machine.
    monkeypatch.setattr(settings, "PAGODA_ENGINES", [f"unix:{tempfile.gettempdir()}/no-engine-{os.getpid()}.sock"])
    monkeypatch.setattr(settings, "PASSWORD_HASHERS", ["django.contrib.auth.hashers.MD5PasswordHasher"])
    return tmp_path / "home"


@pytest.fixture
def make_party(db: None) -> Callable[[str], Party]:
    """Makes a tenant ``slug`` with admin@slug.example and member@slug.example, both with PASSWORD."""

    def make(slug: str) -> Party:
        tenant = Tenant.objects.create(slug=slug, name=slug.title())
        admin = User.objects.create_user(f"admin@{slug}.example", PASSWORD, name="Ada")
        member = User.objects.create_user(f"member@{slug}.example", PASSWORD, name="Mia")
        Membership.across_tenants.create(tenant=tenant, user=admin, role=Role.ADMIN)
        Membership.across_tenants.create(tenant=tenant, user=member, role=Role.MEMBER)
        return Party(tenant, admin, member)

    return make


@pytest.fixture
def acme(make_party: Callable[[str], Party]) -> Party:
    """The tenant that a test works for. ``rival`` always exists beside it."""
    return make_party("acme")


@pytest.fixture
def rival(make_party: Callable[[str], Party]) -> Party:
    """Another tenant."""
    return make_party("rival")


@pytest.fixture(autouse=True)
def rival_is_there(request: pytest.FixtureRequest) -> None:
    """Also where a test that touches the database does not ask for it."""
    if request.node.get_closest_marker("django_db") or {"db", "transactional_db"} & set(request.fixturenames):
        request.getfixturevalue("rival")


@pytest.fixture
def operator(db: None) -> User:
    """Somebody who may enter the admin and belongs to no tenant."""
    return User.objects.create_superuser("operator@pagoda.example", PASSWORD)
