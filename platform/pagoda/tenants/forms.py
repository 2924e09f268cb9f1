"""What people type into the pages of this application."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar

from django import forms
from django.contrib.auth.password_validation import password_validators_help_text_html, validate_password
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.models import LIMITS, ApiKey, Role, Scope, User
from pagoda.tenants.models.access import usual_scopes


class InviteForm(forms.Form):
    email = forms.EmailField(label=_("E-mail address"), widget=forms.EmailInput(attrs={"autocomplete": "off"}))
    role = forms.ChoiceField(label=_("Role"), choices=Role.choices, initial=Role.MEMBER)


class KeyForm(forms.ModelForm):
    """What a key is called, may be used for, and is limited to."""

    scopes = forms.MultipleChoiceField(
        label=_("Scopes"), choices=Scope.choices, initial=usual_scopes, widget=forms.CheckboxSelectMultiple
    )

    class Meta:
        model = ApiKey
        fields = ("label", "scopes", *LIMITS)
        help_texts: ClassVar[dict[str, Any]] = {"label": _("What the key is for.")}

    def limits(self) -> dict[str, int | None]:
        return {name: self.cleaned_data[name] for name in LIMITS}


class NewKeyForm(KeyForm):
    LIFETIMES = (("", _("never expires")), ("30", _("30 days")), ("90", _("90 days")), ("365", _("a year")))

    lifetime = forms.ChoiceField(label=_("Expires after"), choices=LIFETIMES, required=False)

    field_order = ("label", "lifetime", "scopes", *LIMITS)

    def expires(self) -> datetime | None:
        days = self.cleaned_data["lifetime"]
        return timezone.now() + timedelta(days=int(days)) if days else None


class RotateForm(forms.Form):
    OVERLAPS = (("0", _("not at all")), ("1", _("an hour")), ("24", _("a day")), ("168", _("a week")))

    overlap = forms.ChoiceField(label=_("The old key still works for"), choices=OVERLAPS, initial="24")

    def duration(self) -> timedelta:
        return timedelta(hours=int(self.cleaned_data["overlap"]))


class RegisterForm(forms.Form):
    """Name and password of somebody who was invited; the address is the invitation's."""

    name = forms.CharField(label=_("Your name"), max_length=150, widget=forms.TextInput(attrs={"autocomplete": "name"}))
    password = forms.CharField(
        label=_("Password"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=password_validators_help_text_html(),
    )

    def __init__(self, *args: Any, email: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.email = email

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        if password := values.get("password"):
            person = User(email=self.email, name=values.get("name", ""))
            try:
                validate_password(password, person)
            except forms.ValidationError as error:
                self.add_error("password", error)
        return values
