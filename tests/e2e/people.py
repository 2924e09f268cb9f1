"""People beside those of the demo, made as an installation makes them: by its own commands."""

from __future__ import annotations

from dataclasses import dataclass

from stack import Stack

PASSWORD = "correct horse battery staple"

MAKE_ADMIN = """
from pagoda.tenants.models import Membership, Role, Tenant, User
tenant = Tenant.objects.get(slug={slug!r})
user, made = User.objects.get_or_create(email={email!r}, defaults={{"name": "Alex"}})
if made:
    user.set_password({password!r})
    user.save()
    Membership.across_tenants.create(tenant=tenant, user=user, role=Role.ADMIN)
"""


@dataclass(frozen=True)
class Person:
    email: str
    password: str = PASSWORD


def make_admin(stack: Stack, slug: str) -> Person:
    """An admin of a tenant of the demo; the same one each time."""
    person = Person(f"admin@{slug}.example")
    stack.manage("shell", "-c", MAKE_ADMIN.format(slug=slug, email=person.email, password=person.password))
    return person
