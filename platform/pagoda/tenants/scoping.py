"""The tenant that the running code works for, and models that can only be reached through it.

    with tenant_scope(tenant.id):
        Conversation.objects.filter(...)         # this tenant's rows only
    Conversation.objects.filter(...)             # raises TenantScopeRequired
    Conversation.across_tenants.filter(...)      # explicit: the admin, system tasks, sign-in

The scope is a context variable: it follows ``await``, new asyncio tasks and ``sync_to_async``, and never leaks into
another request. Writing is guarded as well: a row is stored only under its own tenant, stays there, and refers only to
rows of the same tenant.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self, TypeVar

from django.core.exceptions import FieldDoesNotExist
from django.db import models

_current: ContextVar[uuid.UUID | None] = ContextVar("pagoda_tenant", default=None)

Row = TypeVar("Row", bound="TenantOwned")


class TenantScopeRequired(RuntimeError):
    """A tenant's rows were asked for outside ``tenant_scope``."""


class CrossTenantAccess(RuntimeError):
    """A row of one tenant was about to be written for, or tied to, another."""


@contextmanager
def tenant_scope(tenant_id: uuid.UUID) -> Iterator[None]:
    """Work for one tenant. Scopes nest; the inner one counts. Works in sync and async code alike."""
    if not isinstance(tenant_id, uuid.UUID):
        raise TypeError(f"tenant_scope takes a tenant's id (UUID), not {type(tenant_id).__name__}")
    token = _current.set(tenant_id)
    try:
        yield
    finally:
        _current.reset(token)


def current_tenant_id() -> uuid.UUID:
    """Raises TenantScopeRequired outside a scope."""
    tenant_id = _current.get()
    if tenant_id is None:
        raise TenantScopeRequired("No tenant is in scope: use `with tenant_scope(tenant.id)`, or `across_tenants`.")
    return tenant_id


def _tenant_references(model: type[TenantOwned]) -> list[models.ForeignKey]:
    """The model's foreign keys to other tenant-owned models."""
    return [
        field
        for field in model._meta.concrete_fields
        if isinstance(field, models.ForeignKey) and issubclass(field.related_model, TenantOwned)
    ]


def _check_references(rows: Iterable[TenantOwned], fields: Collection[models.ForeignKey]) -> None:
    """Every row refers to rows of its own tenant alone. One query per field; none where the objects are loaded."""
    for field in fields:
        unknown: dict[Any, set[uuid.UUID | None]] = defaultdict(set)
        for row in rows:
            target_id = getattr(row, field.attname)
            if target_id is None:
                continue
            if field.is_cached(row):
                _check_same(field, row.tenant_id, getattr(row, field.name).tenant_id)
            else:
                unknown[target_id].add(row.tenant_id)
        if unknown:
            _check_stored(field, unknown)


def _check_stored(field: models.ForeignKey, expected: dict[Any, set[uuid.UUID | None]]) -> None:
    model: Any = field.related_model
    key = field.target_field.attname
    stored = model.across_tenants.filter(**{f"{key}__in": list(expected)}).values_list(key, "tenant_id")
    for target_id, tenant_id in stored:
        for own in expected[target_id]:
            _check_same(field, own, tenant_id)


def _check_same(field: models.ForeignKey, own: uuid.UUID | None, other: uuid.UUID | None) -> None:
    if own != other:
        raise CrossTenantAccess(f"{field.model.__name__}.{field.name} refers to a row of another tenant.")


class TenantQuerySet(models.QuerySet[Row]):
    """Bulk writes under the same rules as ``save``."""

    def create(self, **kwargs: Any) -> Row:
        return super().create(**kwargs)

    def bulk_create(self, objs: Iterable[Row], *args: Any, **kwargs: Any) -> list[Row]:
        rows = list(objs)
        for row in rows:
            row._claim_tenant()
        _check_references(rows, _tenant_references(self.model))
        return super().bulk_create(rows, *args, **kwargs)

    def bulk_update(self, objs: Iterable[Row], fields: Iterable[str], *args: Any, **kwargs: Any) -> int:
        rows, names = list(objs), list(fields)
        for row in rows:
            row._claim_tenant()
        _check_references(rows, [field for field in _tenant_references(self.model) if field.name in names])
        return super().bulk_update(rows, names, *args, **kwargs)

    def update(self, **kwargs: Any) -> int:
        self._check_update(kwargs)
        return super().update(**kwargs)

    update.alters_data = True  # type: ignore[attr-defined]

    def raw(self, *args: Any, **kwargs: Any) -> Any:
        raise TenantScopeRequired("Raw SQL is not filtered by tenant: use across_tenants and name the tenant.")

    def _check_update(self, values: dict[str, Any]) -> None:
        """A row never changes its tenant; a new reference must be of the tenant of every row it is written to."""
        for name, value in values.items():
            try:
                field = self.model._meta.get_field(name)
            except FieldDoesNotExist:
                continue
            if name in ("tenant", "tenant_id"):
                raise CrossTenantAccess("A row stays with its tenant.")
            if field not in _tenant_references(self.model) or value is None:
                continue
            if hasattr(value, "resolve_expression"):
                raise CrossTenantAccess(f"{name} refers to a tenant's row: set it to a row, not to an expression.")
            target = getattr(value, field.target_field.attname) if isinstance(value, models.Model) else value
            own = set(self.order_by().values_list("tenant_id", flat=True).distinct())
            _check_stored(field, {field.target_field.to_python(target): own})


class _ScopedManager(models.Manager.from_queryset(TenantQuerySet)):  # type: ignore[misc]
    """Rows of the tenant in scope. Related managers (``conversation.messages``) are made from this class."""

    def get_queryset(self) -> TenantQuerySet:
        return super().get_queryset().filter(tenant_id=current_tenant_id())


class _UnscopedQuerySet(TenantQuerySet[Row]):
    def raw(self, *args: Any, **kwargs: Any) -> Any:
        return models.QuerySet.raw(self, *args, **kwargs)


class TenantOwned(models.Model):
    """A row that belongs to one tenant."""

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="+")

    objects = _ScopedManager()
    across_tenants = models.Manager.from_queryset(_UnscopedQuerySet)()

    tenant_id: uuid.UUID
    _stored_tenant_id: uuid.UUID | None = None

    class Meta:
        abstract = True
        default_manager_name = "objects"

    def save(self, *args: Any, **kwargs: Any) -> None:
        self._claim_tenant()
        names = kwargs.get("update_fields")
        fields = _tenant_references(type(self))
        if names is not None:
            fields = [field for field in fields if field.name in names or field.attname in names]
        _check_references([self], fields)
        super().save(*args, **kwargs)
        self._stored_tenant_id = self.tenant_id

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        self._claim_tenant()
        return super().delete(*args, **kwargs)

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[Any], **options: Any) -> Self:
        row = super().from_db(db, field_names, values, **options)
        # Only what was loaded: reading a deferred field here would query again.
        row._stored_tenant_id = row.__dict__.get("tenant_id")
        return row

    def validate_unique(self, exclude: Collection[str] | None = None) -> None:
        if self.tenant_id:
            with tenant_scope(self.tenant_id):
                super().validate_unique(exclude)

    def validate_constraints(self, exclude: Collection[str] | None = None) -> None:
        if self.tenant_id:
            with tenant_scope(self.tenant_id):
                super().validate_constraints(exclude)

    def _claim_tenant(self) -> None:
        """Fill the tenant from the scope; refuse another tenant's row, and one that changed hands."""
        scope = _current.get()
        if self.tenant_id is None:
            if not self._meta.get_field("tenant").null or scope is not None:
                self.tenant_id = current_tenant_id()
        elif scope is not None and self.tenant_id != scope:
            raise CrossTenantAccess(f"This {type(self).__name__} belongs to another tenant than the one in scope.")
        if self._stored_tenant_id is not None and self._stored_tenant_id != self.tenant_id:
            raise CrossTenantAccess(f"A {type(self).__name__} stays with its tenant.")
