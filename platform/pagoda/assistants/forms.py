"""What operators and tenants' admins type in."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from pagoda.assistants.checking import check
from pagoda.assistants.models import Assistant, PublishedPrefix


class PrefixForm(forms.ModelForm):
    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"]
        check(text)
        return text


class AssistantForm(forms.ModelForm):
    """Offers what is published, and what is chosen already."""

    class Meta:
        model = Assistant
        fields = ("prefix", "text")
        widgets = {"text": forms.Textarea(attrs={"rows": 10})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choice = self.fields["prefix"]
        assert isinstance(choice, forms.ModelChoiceField)
        choice.queryset = PublishedPrefix.objects.filter(Q(active=True) | Q(pk=self.instance.prefix_id))
        choice.empty_label = _("none")

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        if not self.errors:
            whole = Assistant(prefix=values.get("prefix"), text=values.get("text", "")).system_text
            try:
                if whole:
                    check(whole)
            except ValidationError as error:
                self.add_error("text", error)
        return values
