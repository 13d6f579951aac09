"""Forms of what is known by name and is no part of the configuration: new, changed, deleted, each reviewed first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.nouns import Noun
from controlplane.core.security import Caller
from controlplane.web.alert_forms import NounForm
from controlplane.web.curl import curl, reason_of
from controlplane.web.views.review import Proposal, confirm, propose


@dataclass(frozen=True)
class NounPages:
    """The pages of one noun. `path`: of its REST calls; `home`: the page that lists its rows; `title`: of that page."""

    noun: Noun[Any]
    form: type[NounForm]
    new_form: type[NounForm]
    path: str
    home: str
    section: str
    title: Promise
    new_title: Promise

    def new(self, request: HttpRequest, caller: Caller, given: dict[str, Any] | None = None) -> HttpResponse:
        """`given` is what the page before has filled in."""
        form = self.new_form(request.POST or None, initial={**self.new_form.suggested(), **(given or {})})

        def create(unit: UnitOfWork) -> None:
            values = form.values()
            self.noun.create(unit, values.pop("name"), values)

        return self._ask(request, caller, form, create, str(self.new_title), ("POST", self.path), form.values)

    def edit(self, request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
        current = self.noun.describe(self.noun.get(name))
        form = self.form(request.POST or None, initial=current)

        def changed() -> dict[str, Any]:
            return {field: value for field, value in form.values().items() if value != current[field]}

        def change(unit: UnitOfWork) -> None:
            self.noun.update(unit, name, changed())

        title = _("Change %(name)s") % {"name": name}
        return self._ask(request, caller, form, change, title, ("PATCH", f"{self.path}/{name}"), changed)

    def delete(self, request: HttpRequest, caller: Caller, name: str, note: str) -> HttpResponse:
        self.noun.get(name)
        proposal = Proposal(
            section=self.section,
            title=_("Delete %(name)s") % {"name": name},
            apply_label=_("Delete"),
            action=lambda unit: self.noun.delete(unit, name),
            trail=self._trail(),
            done=reverse(self.home),
            curl=curl(request, "DELETE", f"{self.path}/{name}", query=reason_of(request)),
            note=note,
            dangerous=True,
        )
        return confirm(request, caller, proposal)

    def _ask(
        self,
        request: HttpRequest,
        caller: Caller,
        form: NounForm,
        action: Callable[[UnitOfWork], None],
        title: str,
        call: tuple[str, str],
        body: Callable[[], dict[str, Any]],
    ) -> HttpResponse:
        frame = Frame(self.section, title, self._trail(), reverse(self.home))
        return ask(request, caller, form, frame, action, call, body)

    def _trail(self) -> list[tuple[str, str]]:
        return [(reverse(self.home), str(self.title))]


@dataclass(frozen=True)
class Frame:
    """What stands around a form: where it belongs, and where it leads."""

    section: str
    title: str
    trail: list[tuple[str, str]]
    done: str
    note: str = ""


def ask(
    request: HttpRequest,
    caller: Caller,
    form: NounForm,
    frame: Frame,
    action: Callable[[UnitOfWork], Any],
    call: tuple[str, str],
    body: Callable[[], dict[str, Any]],
) -> HttpResponse:
    """Show a form, then what it would change, then carry that out. `call` and `body`: the REST call that does it."""
    if request.method == "POST" and form.is_valid() and request.POST.get("step") != "edit":
        line = curl(request, *call, query=reason_of(request), body=body())
        proposal = Proposal(
            frame.section, frame.title, _("Apply"), action, frame.trail, frame.done, line, frame.note, carried=form
        )
        try:
            return propose(request, caller, proposal)
        except Refused as refused:
            form.take_refusal(refused)
    context = {"section": frame.section, "trail": frame.trail, "title": frame.title, "done": frame.done, "form": form}
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    return render(request, "web/noun_form.html", context, status=status)
