"""Forms of what is known by name: new, changed, deleted, each reviewed first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from controlplane.web.curl import begun, curl, known, reason_of
from controlplane.web.forms.alert import NounForm
from controlplane.web.views.review import Proposal, confirm, propose

# What the review says that the fields which change will do to whom; empty: nothing that needs a word.
Effect = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True)
class NounPages:
    """The pages of one noun. `path`: of its REST calls; `home`: the page that lists its rows; `title`: of that page.

    `one`: the page of one row, to which its forms lead back; empty: there is none, and the list shows all.
    """

    noun: Noun[Any]
    form: type[NounForm]
    new_form: type[NounForm]
    path: str
    home: str
    section: str
    title: Promise
    new_title: Promise
    one: str = ""
    template: str = "web/noun_form.html"

    def new(self, request: HttpRequest, caller: Caller, given: dict[str, Any] | None = None) -> HttpResponse:
        """`given` is what the page before has filled in."""
        initial = {**self.new_form.suggested(), **(given or {})}
        form = self.new_form(request.POST or None, initial=initial)

        def create(unit: UnitOfWork) -> None:
            values = form.values()
            self.noun.create(unit, values.pop("name"), values)

        done = self._of(form.cleaned_data["name"] if form.is_bound and form.is_valid() else "")
        frame = Frame(self.section, str(self.new_title), self._trail(), done, template=self.template)
        begins = {"name": "NAME", **known(initial, self.noun.fields.model_fields)}
        return ask(request, caller, form, frame, create, ("POST", self.path), form.values, begins)

    def edit(self, request: HttpRequest, caller: Caller, name: str, effect: Effect | None = None) -> HttpResponse:
        current = self.noun.describe(self.noun.get(name))
        form = self.form(request.POST or None, initial=current)
        form.row = current

        def changed() -> dict[str, Any]:
            return {field: value for field, value in form.values().items() if value != current[field]}

        def change(unit: UnitOfWork) -> None:
            self.noun.update(unit, name, changed())

        title, done = _("Change %(name)s") % {"name": name}, self._of(name)
        note = None if effect is None else lambda: effect(changed())
        frame = Frame(self.section, title, self._trail(name), done, note, self.template)
        begins = known(current, self.noun.fields.model_fields)
        return ask(request, caller, form, frame, change, ("PATCH", f"{self.path}/{name}"), changed, begins)

    def delete(self, request: HttpRequest, caller: Caller, name: str, note: str, whom: str = "") -> HttpResponse:
        """`whom`: the tenants that it touches, where more is known than the configuration says."""
        proposal = Proposal(
            section=self.section,
            title=_("Delete %(name)s") % {"name": name},
            apply_label=_("Delete"),
            action=lambda unit: self.noun.delete(unit, name),
            trail=self._trail(name),
            done=reverse(self.home),
            curl=curl(request, "DELETE", f"{self.path}/{name}", query=reason_of(request)),
            note=note,
            dangerous=True,
            whom=whom,
        )
        return confirm(request, caller, proposal)

    def _of(self, name: str) -> str:
        """The page of this row; the list where rows have none, or none can have this name."""
        has_one = self.one and not self.noun.name_like.refusal(name)
        return reverse(self.one, args=[name]) if has_one else reverse(self.home)

    def _trail(self, name: str = "") -> list[tuple[str, str]]:
        steps = [(reverse(self.home), str(self.title))]
        return [*steps, (self._of(name), name)] if self.one and name else steps


@dataclass(frozen=True)
class Frame:
    """What stands around a form: where it belongs, and where it leads. `note`: what the review says beside the diff.

    `whom`: which tenants it touches, where more is known than the configuration says.
    """

    section: str
    title: str
    trail: list[tuple[str, str]]
    done: str
    note: Callable[[], str] | None = None
    template: str = "web/noun_form.html"
    dangerous: bool = False
    whom: Callable[[], str] | None = None


def ask(
    request: HttpRequest,
    caller: Caller,
    form: NounForm,
    frame: Frame,
    action: Callable[[UnitOfWork], Any],
    call: tuple[str, str],
    body: Callable[[], dict[str, Any]],
    begins: dict[str, Any] | None = None,
) -> HttpResponse:
    """Show a form, then what it would change, then carry that out. `call` and `body`: the REST call that does it.

    `begins`: its body before anything is typed, where that is not as the form has it.
    """
    if request.method == "POST" and form.is_valid() and request.POST.get("step") != "edit":
        line = curl(request, *call, query=reason_of(request), body=body())
        note = frame.note() if frame.note else ""
        proposal = Proposal(
            frame.section, frame.title, _("Apply"), action, frame.trail, frame.done, line, note,
            dangerous=frame.dangerous, carried=form, whom=frame.whom() if frame.whom else "",
        )  # fmt: skip
        try:
            return propose(request, caller, proposal)
        except Refused as refused:
            form.take_refusal(refused)
    # Until it is done, a new row has no page to go back to.
    back = frame.trail[-1][0]
    context = {"section": frame.section, "trail": frame.trail, "title": frame.title, "done": back, "form": form}
    first = begun(form) if begins is None else begins
    context["call_line"] = curl(request, *call, query=reason_of(request), body=first)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    return render(request, frame.template, context, status=status)
