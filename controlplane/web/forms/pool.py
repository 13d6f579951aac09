"""The form of a pool."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from controlplane.core.fields import default_of
from controlplane.fleet.models import Pool, StaleTelemetry, Work
from controlplane.fleet.services.pools import BreakerFields
from controlplane.web.forms.arguments import ArgumentsField
from controlplane.web.forms.grouped import Group, GroupedForm, name_field
from controlplane.web.forms.inputs import code
from controlplane.web.forms.model import model_choices
from controlplane.web.forms.numbers import percent, seconds, whole

BREAKER = tuple(BreakerFields.model_fields)
# Whose fields name their own columns.
_SUGGESTED = (
    "work", "kv_admit_permille", "queue_cap", "queue_ttl_ms", "stale_telemetry", "adaptive_concurrency",
    "objective_permille",
)  # fmt: skip
_STALE_WORDS = {
    StaleTelemetry.CLOSE: _("close: the engine gets nothing new"),
    StaleTelemetry.HOLD: _("hold: the last known use counts on"),
    StaleTelemetry.OPEN: _("open: as if its cache were empty"),
}


class PoolForm(GroupedForm):
    """The fields of a pool, named as in the REST call; those of its breaker stand without their group's name."""

    model = forms.ChoiceField(label=_("Model"), choices=model_choices, help_text=_("What its engines serve."))
    work = forms.ChoiceField(label=_("Kind of work"), choices=Work.choices)
    ttft_slo_ms = whole(_("Time to first token, at most (ms)"), empty=_("not promised"))
    tpot_slo_ms = whole(_("Time per output token, at most (ms)"), empty=_("not promised"))
    e2e_slo_ms = whole(_("The whole answer, at most (ms)"), empty=_("not promised"))
    objective_permille = percent(_("Objective (share of requests, %)"), _("Which share must get all that is promised."))
    kv_admit_permille = percent(
        _("Admit until so full (KV cache, %)"),
        _("A request that would fill an engine further waits. What is above is room for answers that grow."),
    )
    stale_telemetry = forms.ChoiceField(
        label=_("When an engine's KV use is not known"), choices=list(_STALE_WORDS.items())
    )
    max_concurrency = whole(
        _("Requests at its engines, at most"), _("All gateways together."), empty=_("as KV cache admits")
    )
    adaptive_concurrency = forms.BooleanField(
        label=_("Gateways find the number of requests themselves, up to that"), required=False
    )
    queue_cap = whole(_("Requests that may wait"), _("At each gateway. One more is refused at once. 0: none waits."))
    queue_ttl_ms = seconds(_("Longest wait (s)"), _("Whoever waits longer is refused with 503."))
    error_permille = percent(_("Errors that open it (%)"), _("Of the requests in the window."))
    timeout_permille = percent(_("Timeouts that open it (%)"), _("Of the requests in the window."))
    timeout_ms = seconds(_("A timeout is a first token after (s)"), _("0: only what the engine or client gave up."))
    minimum_requests = whole(_("Judged from so many requests on"), _("In the window; fewer prove nothing."))
    window_ms = seconds(_("Window (s)"), _("Older requests count no longer."))
    cooldown_ms = seconds(_("Stays open (s)"), _("Then it is tried with a few requests."))
    half_open_probes = whole(_("Requests it is tried with"), _("All must go well, or it opens again."))
    engine_arguments = ArgumentsField(
        label=_("Arguments of its engines"),
        required=False,
        widget=code(4),
        help_text=_("One a line as name=value, such as max-num-seqs=64; a text that looks like a number in quotes."),
    )
    adapters = ArgumentsField(
        label=_("LoRA adapters"),
        required=False,
        widget=code(4),
        help_text=_("One a line as name=folder on the nodes, such as support=/srv/adapters/support."),
    )

    groups = (
        Group(_("What it serves"), "", ("model", "work")),
        Group(
            _("What is promised (SLO)"),
            _("Requests that get all of it are goodput; classes may promise more or less."),
            ("ttft_slo_ms", "tpot_slo_ms", "e2e_slo_ms", "objective_permille"),
        ),
        Group(
            _("Admission"),
            _("When a request may go to an engine."),
            ("kv_admit_permille", "stale_telemetry", "max_concurrency", "adaptive_concurrency"),
        ),
        Group(_("Queue"), _("Where a request waits that may not go yet."), ("queue_cap", "queue_ttl_ms")),
        Group(
            _("Breakers"),
            _("When an engine, or the whole pool, gets no requests for a while because too many went wrong."),
            BREAKER,
        ),
        Group(
            _("How its engines are started"),
            _("What differs from it is shown at the engine; a rollout restarts engines with it."),
            ("engine_arguments", "adapters"),
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = kwargs.get("initial") or {}
        kwargs["initial"] = {**given, **given.get("breaker", {})}
        super().__init__(*args, **kwargs)

    def values(self) -> dict[str, Any]:
        values = dict(self.cleaned_data)
        breaker = {name: values.pop(name) for name in BREAKER}
        return {**values, "breaker": breaker}

    @staticmethod
    def suggested() -> dict[str, Any]:
        own = {name: default_of(Pool, name) for name in _SUGGESTED}
        return {**own, "breaker": {name: default_of(Pool, f"breaker_{name}") for name in BREAKER}}


class NewPoolForm(PoolForm):
    name = name_field()
