"""Forms of the dashboard. They check shape; what is allowed the services say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.text import slugify

from qualityhub.accounts.choices import Scope
from qualityhub.accounts.models import slug_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qualityhub.accounts.models import Team
    from qualityhub.registry.models import Domain

LIFETIMES = (("30", "30 days"), ("90", "90 days"), ("365", "1 year"), ("", "until revoked"))
FOR_CI = (Scope.ENVIRONMENTS_READ, Scope.ENVIRONMENTS_WRITE, Scope.INSPECTIONS_WRITE)


class TokenForm(forms.Form):
    """A new token."""

    name = forms.CharField(max_length=100, label="Name", help_text="What will use it.")
    team = forms.ChoiceField(label="Team", required=False)
    days = forms.ChoiceField(label="Works for", choices=LIFETIMES, required=False, initial="90")
    scopes = forms.MultipleChoiceField(
        label="It may",
        choices=Scope.choices,
        widget=forms.CheckboxSelectMultiple,
        initial=[scope.value for scope in FOR_CI],
    )

    def __init__(self, data: Any, *, teams: Sequence[Team]) -> None:
        super().__init__(data)
        field = self.fields["team"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(team.slug, team.name) for team in teams]


class UploadForm(forms.Form):
    """An environment to register: where it belongs, and its archive or its reference."""

    domain = forms.ChoiceField(label="Domain", required=False)
    new_domain = forms.CharField(
        label="or a new domain",
        max_length=63,
        required=False,
        validators=[slug_shape],
        help_text="Lower-case letters, digits and hyphens.",
    )
    team = forms.ChoiceField(label="Team of the new domain", required=False)
    name = forms.CharField(
        label="Environment",
        max_length=200,
        help_text="The name of one that exists adds a version to it.",
    )
    archive = forms.FileField(
        label="Archive",
        required=False,
        allow_empty_file=True,
        help_text="A zip or tar file with the environment's folder.",
    )
    source = forms.CharField(
        label="or a reference",
        max_length=500,
        required=False,
        widget=forms.TextInput(attrs={"placeholder": "gymnasium:CartPole-v1"}),
    )
    adapter = forms.ChoiceField(label="Format", required=False)
    entry = forms.CharField(
        label="Entry",
        max_length=300,
        required=False,
        widget=forms.TextInput(attrs={"placeholder": "env.py:ClassName"}),
        help_text="Only where the format needs it.",
    )

    def __init__(
        self,
        data: Any,
        files: Any,
        *,
        teams: Sequence[Team],
        domains: Sequence[Domain],
        adapters: Sequence[str],
        initial: dict[str, str],
    ) -> None:
        super().__init__(data, files, initial=initial)
        several = len(teams) > 1
        self._only_team = "" if several else teams[0].slug
        self._choices("team", [(team.slug, team.name) for team in teams])
        self._choices("adapter", [("", "detect"), *((name, name) for name in adapters)])
        self._choices(
            "domain",
            [
                ("", "choose one"),
                *(
                    (row.public_id, f"{row.team.slug} / {row.slug}" if several else row.slug)
                    for row in domains
                ),
            ],
        )
        if not several:
            self.fields["team"].widget = forms.HiddenInput()
            self.fields["team"].initial = self._only_team

    def _choices(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    def clean(self) -> dict[str, Any]:
        """Check that each choice of two was made once."""
        fields = super().clean() or self.cleaned_data
        slug = slugify(fields.get("name", ""))[:63].strip("-_").replace("_", "-")
        if "name" in fields and not slug:
            self.add_error("name", "The name needs at least one letter or digit.")
        fields["slug"] = slug
        fields["team"] = fields.get("team") or self._only_team
        if "new_domain" in fields and bool(fields.get("domain")) == bool(fields["new_domain"]):
            self.add_error("domain", "Choose a domain or name a new one.")
        if bool(fields.get("archive")) == bool(fields.get("source")):
            self.add_error("archive", "Give either an archive or a reference.")
        return fields
