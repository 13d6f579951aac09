"""Routes: the rules in the order in which they apply, what goes where now, and the tester."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, get_args

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound, Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.routing import asked
from controlplane.routing.asked import CLASS_HEADER
from controlplane.routing.models import Route
from controlplane.routing.services import ROUTES
from controlplane.web.access import page
from controlplane.web.convergence import followed
from controlplane.web.curl import curl, reason_of
from controlplane.web.effects import tenants_of
from controlplane.web.forms.route import NewRouteForm, RouteForm, SentForm, TrialForm
from controlplane.web.listed import Wanted, listed
from controlplane.web.measured import Board, Numbers, Question
from controlplane.web.panels import shared_panel
from controlplane.web.sent_text import read_body
from controlplane.web.shown.route_order import Direction, moved
from controlplane.web.shown.route_trial import tried
from controlplane.web.shown.route_words import conditions, way
from controlplane.web.views.noun_pages import NounPages
from controlplane.web.views.review import Proposal, confirm
from wire.canonical import Document

SECTION = "routes"
_PATHS = get_args(asked.Path)
LATELY = {"rate": Question('sum by (pool) (rate(headworks_gateway_requests_total{pool!=""}[5m]))', ("pool",))}
_BOARD = Board("routes", LATELY)
_PAGES = NounPages(
    ROUTES, RouteForm, NewRouteForm, "/routes", "web:routes", SECTION,
    gettext_lazy("Routes"), gettext_lazy("New route"), template="web/route_form.html",
)  # fmt: skip


@page()
def routes(request: HttpRequest, caller: Caller) -> HttpResponse:
    form = TrialForm(request.GET if "try_model" in request.GET else None)
    question, answer = _tried(form)
    context: dict[str, Any] = {
        "section": SECTION,
        **_rules(Wanted.of(request)),
        "form": form,
        "tested": answer,
        "curl_routes": curl(request, "GET", "/routes"),
        "curl_test": curl(request, "POST", "/routes/test", body=question) if answer else "",
        **followed(request, caller),
    }
    return render(request, "web/routes.html", context)


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    may_operate, wanted = caller.role.covers(Role.OPERATOR), Wanted.of(request)
    context = {"may_operate": may_operate}
    return shared_panel("web/parts/routes.html", lambda: {**_rules(wanted), **context}, (may_operate, wanted))


def _rules(wanted: Wanted) -> dict[str, Any]:
    found = listed(Route.objects.filter(name__icontains=wanted.text).order_by("order", "name"), wanted)
    numbers = _BOARD.get()
    rows = [ROUTES.describe(row) for row in found.rows]
    lines = [{"row": row, "when": conditions(row["match"]), "way": _lately(row, numbers)} for row in rows]
    return {"lines": lines, "listed": found, "missing": numbers.missing}


def _lately(row: Document, numbers: Numbers) -> dict[str, Any]:
    """Where the rule leads, and what each of its pools gets now, of all requests to these pools."""
    led = way(row)
    rates = {each.pool: numbers.of("rate", each.pool) for each in led.pools}
    total = sum(rate for rate in rates.values() if rate)
    pools = [
        {
            "pool": each.pool,
            "percent": each.percent,
            "rate": rates[each.pool],
            "now_percent": 100 * (rates[each.pool] or 0) / total if total else None,
        }
        for each in led.pools
    ]
    return {**led._asdict(), "pools": pools}


def _tried(form: TrialForm) -> tuple[Document, Document | None]:
    """The question and its answer; None where nothing is asked, or the form says why it cannot be."""
    if not form.is_bound or not form.is_valid() or not form.check_trial():
        return {}, None
    question = form.trial()
    try:
        return question, tried(question)
    except Refused as refused:
        form.take_refusal(refused)
        return question, None


@page()
def test_route(request: HttpRequest, caller: Caller) -> HttpResponse:
    """A request as a client sends it. It is no write: the form is sent so that it stands in no log."""
    form = SentForm(request.POST or None, paths=_PATHS)
    example = {"request": {"path": _PATHS[0], "body": {"model": "MODEL", "messages": []}, "tenant": "NAME"}}
    answer, line = None, curl(request, "POST", "/routes/test", body=example)
    if form.is_bound and form.is_valid():
        try:
            question = _sent(form)
            answer = tried(question)
            line = curl(request, "POST", "/routes/test", body=question)
        except Refused as refused:
            form.take_refusal(refused)
    context = {
        "section": SECTION,
        "title": _("Where would a request go?"),
        "trail": [(reverse("web:routes"), _("Routes"))],
        "form": form,
        "tested": answer,
        "curl_test": line,
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    return render(request, "web/route_test.html", context, status=status)


def _sent(form: SentForm) -> Document:
    given = form.cleaned_data
    chosen = given["priority_class"]
    whose = {name: given[name] for name in ("tenant", "key_prefix") if given[name]}
    headers = {CLASS_HEADER: chosen} if chosen else {}
    return {"request": {"path": given["path"], "body": read_body(given["body"]), "headers": headers, **whose}}


@page(Role.OPERATOR)
def new_route(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _unsent(request, NewRouteForm, str(_PAGES.new_title)) or _PAGES.new(request, caller)


@page(Role.OPERATOR)
def edit_route(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    pools = ROUTES.get(name).pools or {}
    title = _("Change %(name)s") % {"name": name}

    def effect(changed: Mapping[str, Any]) -> str:
        if "pools" not in changed:
            return ""
        after = changed["pools"] or {}
        return _takes_from([pool for pool, weight in pools.items() if after.get(pool, 0) < weight])

    return _unsent(request, RouteForm, title, name) or _PAGES.edit(request, caller, name, effect)


def _takes_from(pools: list[str]) -> str:
    """Whose requests get fewer in these pools; empty where nobody sent any."""
    sent, fewer = tenants_of(pools), _("Fewer requests go to %(pools)s.") % {"pools": ", ".join(sorted(pools))}
    return f"{fewer} {sent}" if sent else ""


def _unsent(request: HttpRequest, kind: type[RouteForm], title: str, name: str = "") -> HttpResponse | None:
    """The form again, with more lines or with what the tester says of it as it is typed; None: it is to be sent."""
    step = request.POST.get("step")
    if step not in ("more", "test"):
        return None
    form = kind(request.POST)
    answer = None
    if step == "more":
        form = kind(initial=form.typed_with_more_lines())
    elif form.is_valid() and form.check_trial():
        try:
            answer = _tried_draft(form, name)
        except Refused as refused:
            form.take_refusal(refused)
    home = reverse("web:routes")
    trail = [(home, str(_PAGES.title))]
    context = {"section": SECTION, "title": title, "trail": trail, "done": home, "form": form, "tested": answer}
    call = ("PATCH", f"/routes/{name}") if name else ("POST", "/routes")
    typed = form.values() if form.is_bound and not form.errors else {"order": form["order"].value()}
    body = typed if name else {"name": "NAME", **typed}
    context["call_line"] = curl(request, *call, query=reason_of(request), body=body)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    return render(request, "web/route_form.html", context, status=status)


def _tried_draft(form: RouteForm, name: str) -> Document:
    rule = form.values()
    return tried(form.trial(), (rule.pop("name", name), rule))


@page(Role.OPERATOR)
def delete_route(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = ROUTES.get(name)
    note = _("Requests that it matched take the next rule that does; what no rule matches is refused (no_route).")
    return _PAGES.delete(request, caller, name, note, tenants_of(row.pools or {}))


@page(Role.OPERATOR)
def move_route(request: HttpRequest, caller: Caller, name: str, direction: Direction) -> HttpResponse:
    ROUTES.get(name)
    if direction not in get_args(Direction):
        raise NotFound("a rule moves up or down")
    orders = moved(dict(Route.objects.values_list("name", "order")), name, direction)

    def change(unit: UnitOfWork) -> None:
        for each, order in orders.items():
            ROUTES.update(unit, each, {"order": order})

    home = reverse("web:routes")
    title = _("Move %(name)s up") if direction == "up" else _("Move %(name)s down")
    lines = [
        curl(request, "PATCH", f"/routes/{each}", query=reason_of(request), body={"order": order})
        for each, order in orders.items()
    ]
    proposal = Proposal(
        section=SECTION,
        title=title % {"name": name},
        apply_label=_("Move it"),
        action=change,
        trail=[(home, _("Routes"))],
        done=home,
        curl="\n".join(lines),
        note=_("Rules are tried from the lowest order up; the first that matches decides."),
    )
    return confirm(request, caller, proposal)
