"""Tenants and the people who belong to them."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.identifiers import new_id
from pagoda.tenants.scoping import TenantOwned


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """A person. Addresses are compared without regard to case. Without a password nobody can sign in as them."""
        if not email:
            raise ValueError("A user needs an e-mail address.")
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """An operator: may do everything in the admin, and belongs to no tenant by that."""
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)

    def get_by_natural_key(self, username: str | None) -> User:
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser, PermissionsMixin):
    """A person, known by an e-mail address. ``is_staff`` makes an operator."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    email = models.EmailField(_("e-mail address"), unique=True)
    name = models.CharField(_("name"), max_length=150, blank=True)
    is_staff = models.BooleanField(_("operator"), default=False, help_text=_("May enter the admin."))
    is_active = models.BooleanField(_("active"), default=True, help_text=_("Whether this person can sign in."))
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        verbose_name = _("user")
        verbose_name_plural = _("users")
        ordering = ("email",)

    def __str__(self) -> str:
        return self.email

    def clean(self) -> None:
        super().clean()
        self.email = self.email.strip().lower()

    def get_full_name(self) -> str:
        return self.name or self.email

    def get_short_name(self) -> str:
        return self.name or self.email.partition("@")[0]


class Tenant(models.Model):
    """An organisation: the unit of privacy, quota and billing."""

    class CacheScope(models.TextChoices):
        TENANT = "tenant", _("the whole tenant shares cached prompts")
        USER = "user", _("each person has their own")

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    slug = models.SlugField(_("short name"), unique=True, max_length=60)
    name = models.CharField(_("name"), max_length=150)
    is_active = models.BooleanField(
        _("active"), default=True, help_text=_("A suspended tenant cannot sign in or call; its blocks are given back.")
    )
    cache_scope = models.CharField(
        _("prefix cache"), max_length=10, choices=CacheScope.choices, default=CacheScope.TENANT
    )
    retention_days = models.PositiveIntegerField(
        _("retention"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("Days after its last message until a conversation is deleted. Empty: kept."),
    )
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("tenant")
        verbose_name_plural = _("tenants")
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def account(self) -> str:
        """The name of this tenant's account in the pool."""
        return str(self.id)

    def scope_for(self, user_id: uuid.UUID | None) -> str:
        """The isolation domain of cached blocks, derived here and never taken from a client.

        A call without a person (an API key's) uses the tenant's scope.
        """
        if self.cache_scope == self.CacheScope.USER and user_id is not None:
            return f"user:{user_id}"
        return f"tenant:{self.id}"


class Role(models.TextChoices):
    MEMBER = "member", _("member")
    ADMIN = "admin", _("tenant admin")


class Membership(TenantOwned):
    """A person in a tenant. Operators are not members by being operators."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(_("role"), max_length=10, choices=Role.choices, default=Role.MEMBER)
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("member")
        verbose_name_plural = _("members")
        ordering = ("user__email",)
        default_manager_name = "objects"
        constraints = (models.UniqueConstraint(fields=["tenant", "user"], name="membership_once"),)

    def __str__(self) -> str:
        return f"{self.user} · {self.get_role_display()}"
