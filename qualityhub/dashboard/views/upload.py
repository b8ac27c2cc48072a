"""Registering an environment from the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from qualityhub.accounts.access import access_team
from qualityhub.accounts.choices import Role
from qualityhub.accounts.models import Team
from qualityhub.dashboard.forms import UploadForm
from qualityhub.dashboard.frame import member_page
from qualityhub.engine.environments.formats import FORMATS
from qualityhub.engine.errors import ForbiddenError, QualityHubError
from qualityhub.inspections.choices import Trigger
from qualityhub.inspections.models import Inspection
from qualityhub.inspections.services import inspection_start
from qualityhub.registry.access import access_domain, access_environment
from qualityhub.registry.models import Domain
from qualityhub.registry.services import domain_ensure, environment_ensure, version_register

if TYPE_CHECKING:
    from typing import BinaryIO

    from django.http import HttpRequest, HttpResponse

    from qualityhub.accounts.access import Actor


@require_http_methods(["GET", "HEAD", "POST"])
@member_page
def upload(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Take an archive or a reference, register it as a version and start its inspection."""
    teams = list(Team.objects.filter(pk__in=_may_add(actor)).order_by("slug"))
    if not teams:
        raise ForbiddenError(
            "access.role", "Uploading needs the role contributor.", "Ask a team administrator."
        )
    domains = list(Domain.objects.filter(team__in=teams).select_related("team").order_by("slug"))
    form = UploadForm(
        request.POST or None,
        request.FILES or None,
        teams=teams,
        domains=domains,
        adapters=[item.NAME for item in FORMATS],
        initial=_initial(request, actor),
    )
    if request.method == "POST" and form.is_valid():
        try:
            inspection = _register(form, actor)
        except QualityHubError as error:
            form.add_error(None, f"{error.message} {error.hint}".strip())
        else:
            return redirect("dashboard:inspection", inspection.public_id)
    status = 422 if form.errors else 200
    return render(request, "dashboard/upload.html", {"form": form}, status=status)


def _initial(request: HttpRequest, actor: Actor) -> dict[str, str]:
    ref = request.GET.get("environment", "")
    if ref:
        known = access_environment(actor, ref, Role.CONTRIBUTOR)
        return {"domain": known.domain.public_id, "name": known.slug}
    ref = request.GET.get("domain", "")
    return {"domain": access_domain(actor, ref).public_id} if ref else {}


def _register(form: UploadForm, actor: Actor) -> Inspection:
    """Register and inspect as one: where the package is refused, no empty domain stays behind."""
    fields = form.cleaned_data
    archive: BinaryIO | None = fields["archive"].file if fields["archive"] else None
    with transaction.atomic():
        if fields["new_domain"]:
            team = access_team(actor, fields["team"] or None, Role.CONTRIBUTOR)
            domain = domain_ensure(team=team, slug=fields["new_domain"], actor=str(actor))
        else:
            domain = access_domain(actor, fields["domain"], Role.CONTRIBUTOR)
        environment = environment_ensure(
            domain=domain, slug=fields["slug"], name=fields["name"], actor=str(actor)
        )
        registered = version_register(
            environment=environment,
            actor=str(actor),
            archive=archive,
            filename=fields["archive"].name if fields["archive"] else "",
            source=fields["source"],
            adapter=fields["adapter"] or None,
            entry=fields["entry"],
        )
        known = None
        if not registered.created:
            known = Inspection.objects.filter(version=registered.version).order_by("-pk").first()
        return known or inspection_start(
            version=registered.version, actor=str(actor), trigger=Trigger.UPLOAD
        )


def _may_add(actor: Actor) -> list[int]:
    return [team for team, role in actor.roles.items() if role.includes(Role.CONTRIBUTOR)]
