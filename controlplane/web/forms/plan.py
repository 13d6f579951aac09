"""What people type of a plan, a fan-out or a promise, read into the bodies of their REST calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.core.errors import Refused
from controlplane.web.forms.common import RefusableForm, ScaledField
from controlplane.web.forms.inputs import code, decimal, numeric
from policy.planning.config_json import TEXT_MAX_BYTES, BadConfig, read_text
from policy.planning.fan_out import LOAD_PERMILLE
from policy.planning.fit import UTILISATION_PERMILLE
from policy.planning.gpus import GPUS
from policy.planning.known import KNOWN
from policy.planning.shapes import QUANTISATIONS
from wire.canonical import MAX_INTEGER, Document
from wire.problems import Problem

PASTED, TYPED, MEASURED = "pasted", "typed", "measured"
FLEET, _KNOWN = "fleet:", "known:"
_GIB, _GB = 2**30, 10**9
_LINES_MAX_CHARACTERS = 5000


def _number(
    label: Any, help_text: Any = "", *, required: bool = False, initial: int | None = None
) -> forms.IntegerField:
    # The service knows the ranges; here only text becomes a number.
    return forms.IntegerField(
        label=label, help_text=help_text, required=required, initial=initial,
        widget=numeric(),
    )  # fmt: skip


def read_pairs(text: str) -> dict[str, str]:
    """`p50=1000, p95=6000` as a map. Raises ValidationError."""
    found: dict[str, str] = {}
    for part in text.replace(",", " ").split():
        name, equals, value = part.partition("=")
        if not equals or not name or not value or name in found:
            raise ValidationError(_("“%(part)s”: give it as name=number.") % {"part": part[:50]}, code="pairs")
        found[name] = value
    return found


def whole(text: str) -> int:
    """Raises ValidationError."""
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise ValidationError(_("“%(part)s” is no whole number.") % {"part": text[:50]}, code="whole")
    return int(text)


class LengthField(forms.CharField):
    """`mean=1500`, `mean=300, p95=900` or `p50=1000, p95=6000` → what the REST call takes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=_LINES_MAX_CHARACTERS, required=False, **options)

    def clean(self, value: Any) -> Any:
        return {name: whole(number) for name, number in read_pairs(super().clean(value)).items()} or None


class PlanForm(RefusableForm):
    model = forms.ChoiceField(label=gettext_lazy("Model"))
    config = forms.CharField(
        label="config.json",
        required=False,
        max_length=TEXT_MAX_BYTES,
        help_text=gettext_lazy("Of another model: the file of that name that lies beside its weights, as it is."),
        widget=code(6),
    )
    weights = forms.ChoiceField(label=gettext_lazy("Weights"), required=False)
    kv_cache_dtype = forms.ChoiceField(label=gettext_lazy("KV cache"), choices=[("bf16", "bf16"), ("fp8", "fp8")])
    context_tokens = _number(gettext_lazy("Longest context, tokens"), gettext_lazy("Empty: the model's own."))
    gpus = forms.ChoiceField(label="GPU")
    memory_bytes = ScaledField(
        _GIB, label=gettext_lazy("Memory of another GPU, GiB"), required=False, min_value=1, max_value=4096
    )
    per_node = _number(gettext_lazy("GPUs of a machine"), gettext_lazy("Empty: as the fleet has it, else 1."))
    nodes = _number(gettext_lazy("Machines"), gettext_lazy("Empty: as the fleet has it, else 1."))
    link = forms.ChoiceField(
        label=gettext_lazy("Link between them"),
        required=False,
        choices=[("", gettext_lazy("as measured, else usual")), ("nvlink", "NVLink"), ("pcie", "PCIe")],
    )
    utilisation_permille = ScaledField(
        10, label=gettext_lazy("Memory that the engine may use (%)"), min_value=0, max_value=100,
        initial=UTILISATION_PERMILLE,
    )  # fmt: skip
    activation_bytes = ScaledField(
        _GB, label=gettext_lazy("For activations, GB a GPU"), required=False, min_value=0, max_value=1000,
        help_text=gettext_lazy("Empty: an assumption; the engine measures it."),
    )  # fmt: skip
    graph_bytes = ScaledField(
        _GB, label=gettext_lazy("For CUDA graphs, GB a GPU"), required=False, min_value=0, max_value=1000,
        help_text=gettext_lazy("Empty: an assumption; the engine measures it."),
    )  # fmt: skip
    tensor_parallel = _number(gettext_lazy("Tensor parallel"), gettext_lazy("Empty: what the decision tree leads to."))
    pipeline_parallel = _number(
        gettext_lazy("Pipeline parallel"), gettext_lazy("Empty: what the decision tree leads to.")
    )
    lengths = forms.ChoiceField(label=gettext_lazy("Lengths of requests"))
    prompt = LengthField(
        label=gettext_lazy("Prompts, tokens"), initial="p50=1000, p95=6000",
        help_text=gettext_lazy("A mean and a percentile, or two percentiles: mean=1500, p95=6000."),
    )  # fmt: skip
    output = LengthField(label=gettext_lazy("Answers, tokens"), initial="mean=300, p95=900")
    days = _number(gettext_lazy("Measured over so many days"), initial=7)
    measured_pool = forms.ChoiceField(label=gettext_lazy("Measured in one pool"), required=False)
    tenant = forms.ChoiceField(label=gettext_lazy("Measured of one tenant"), required=False)
    prefill_tokens_per_second = forms.FloatField(
        label=gettext_lazy("Tokens a GPU reads a second"), required=False,
        help_text=gettext_lazy("Measured on yours. Empty: estimated from its data sheet."),
        widget=decimal(),
    )  # fmt: skip
    decode_tokens_per_second = forms.FloatField(
        label=gettext_lazy("Tokens a GPU writes a second"), required=False,
        widget=decimal(),
    )  # fmt: skip
    rates = forms.ChoiceField(label=gettext_lazy("Or as a pool's GPUs did"), required=False)
    tpot_slo_ms = _number(gettext_lazy("TPOT to hold, ms"), gettext_lazy("Empty: none."))
    acceptable_wait_ms = ScaledField(
        1000, label=gettext_lazy("A client will wait, seconds"), min_value=0, max_value=3600, initial=5000
    )
    compare_model = forms.ChoiceField(label=gettext_lazy("Beside engines of"), required=False)

    def __init__(
        self,
        *args: Any,
        fleet: Sequence[Document],
        pools: Iterable[str],
        tenants: Iterable[str],
        models: Iterable[str],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        pools = list(pools)
        self._offer("model", [*KNOWN], {PASTED: _("as pasted below")})
        self._offer("weights", QUANTISATIONS, {"": _("as the file has them")})
        of_fleet = {f"{FLEET}{group['nodes'][0]}": _group_label(group) for group in fleet}
        of_table = {f"{_KNOWN}{gpu.name}": gpu.name for gpu in GPUS}
        self._offer("gpus", (), {**of_fleet, **of_table, TYPED: _("another, by its memory")})
        self._offer("lengths", (), {TYPED: _("as typed"), MEASURED: _("as measured")})
        self._offer("measured_pool", pools, {"": _("all pools")})
        self._offer("tenant", tenants, {"": _("all tenants")})
        self._offer("rates", pools, {"": _("none")})
        self._offer("compare_model", models, {"": _("the model's own name")})

    def _offer(self, name: str, values: Iterable[str], first: dict[str, Any]) -> None:
        field = cast(forms.ChoiceField, self.fields[name])
        field.choices = [*first.items(), *((value, value) for value in values)]

    def asked(self) -> Document:
        """The body of POST /plans, as far as something was typed."""
        typed = self.cleaned_data
        plain = (
            "weights", "kv_cache_dtype", "context_tokens", "utilisation_permille", "activation_bytes", "graph_bytes",
            "tensor_parallel", "pipeline_parallel", "tpot_slo_ms", "acceptable_wait_ms", "compare_model",
        )  # fmt: skip
        body: Document = {"model": self._model(), "gpus": self._gpus(), "lengths": self._lengths()}
        body |= {name: typed[name] for name in plain if typed[name] not in (None, "")}
        names = ("prefill_tokens_per_second", "decode_tokens_per_second")
        rates = {name: typed[name] for name in names if typed[name] is not None}
        if typed["rates"] and not rates:
            rates = {"pool": typed["rates"], **self._days()}
        return {**body, "rates": rates} if rates else body

    def _model(self) -> Document:
        if self.cleaned_data["model"] != PASTED:
            return {"known": self.cleaned_data["model"]}
        try:
            return {"config": read_text(self.cleaned_data["config"])}
        except BadConfig as bad:
            at = "/model/config"
            problems = [Problem(at + each.path.rstrip("/"), each.rule, each.message) for each in bad.problems]
            raise Refused(str(bad), problems) from None

    def _gpus(self) -> Document:
        chosen = str(self.cleaned_data["gpus"])
        names = ("per_node", "nodes", "link")
        body: Document = {name: self.cleaned_data[name] for name in names if self.cleaned_data[name] not in (None, "")}
        if chosen.startswith(FLEET):
            return {"fleet_node": chosen.removeprefix(FLEET), **body}
        if chosen.startswith(_KNOWN):
            return {"known": chosen.removeprefix(_KNOWN), **body}
        return {"memory_bytes": self.cleaned_data["memory_bytes"], **body}

    def _lengths(self) -> Document:
        if self.cleaned_data["lengths"] == MEASURED:
            given = {"pool": self.cleaned_data["measured_pool"], "tenant": self.cleaned_data["tenant"]}
            return {"measured": {**{name: value for name, value in given.items() if value}, **self._days()}}
        return {name: self.cleaned_data[name] for name in ("prompt", "output")}

    def _days(self) -> Document:
        days = self.cleaned_data["days"]
        return {} if days is None else {"days": days}

    def at_field(self, problem: Problem) -> Problem:
        """Nested fields stand in the form by their own names: /gpus/per_node is `per_node`.

        What is wrong in the pasted file is said of it by the name that it has there.
        """
        first, _slash, last = problem.path.strip("/").partition("/")
        if first == "model" and last.startswith("config"):
            where = last.removeprefix("config").strip("/")
            message = f"{where}: {problem.message}" if where else problem.message
            return Problem("/config", problem.rule, message)
        if first in ("gpus", "lengths", "rates") and last in self.fields:
            return Problem(f"/{last}", problem.rule, problem.message)
        return problem


def _group_label(group: Document) -> str:
    nodes = group["nodes"]
    text = (
        _("%(node)s and %(others)s more: %(count)s × %(gpu)s") if len(nodes) > 1 else _("%(node)s: %(count)s × %(gpu)s")
    )
    return text % {"node": nodes[0], "others": len(nodes) - 1, "count": group["per_node"], "gpu": group["gpu"]}


# A question that is looked up and answered, and an agent that takes five steps for one question in ten.
CALLS_EXAMPLE = """rewrite calls=1 prompt=300 output=60
embed calls=1 prompt=60 model=embedder
rerank calls=1 prompt=5000 model=embedder
generate calls=1 prompt=4000 output=400 cached=30
agent-steps calls=0.5 prompt=6000 output=250 cached=70"""
RATES_EXAMPLE = "main prefill=8000 decode=1500"
_CALL_NAMES = {
    "calls": "calls_permille", "prompt": "prompt_tokens", "output": "output_tokens", "cached": "cached_permille",
    "model": "model",
}  # fmt: skip
_SCALE = {"calls": 1000, "cached": 10}


class FanOutForm(RefusableForm):
    users = _number(gettext_lazy("Users"), required=True, initial=1000)
    requests_per_user_per_hour = forms.FloatField(
        label=gettext_lazy("Requests of a user in a mean hour"), initial=4,
        widget=decimal(),
    )  # fmt: skip
    peak_permille = ScaledField(
        1000, label=gettext_lazy("Busiest hour, times the mean"), min_value=0, max_value=100, initial=2000
    )
    load_permille = ScaledField(
        10, label=gettext_lazy("Load to plan with (%)"), min_value=0, max_value=100, initial=LOAD_PERMILLE,
        help_text=gettext_lazy("At 80 the mean wait is 4 service times."),
    )  # fmt: skip
    calls = forms.CharField(
        label=gettext_lazy("Calls that one request sets off"),
        max_length=_LINES_MAX_CHARACTERS,
        initial=CALLS_EXAMPLE,
        help_text=gettext_lazy(
            "One a line: a name, how many calls, tokens of one, what share of the prompt is cached (%), by which model."
        ),
        widget=code(6),
    )
    rates = forms.CharField(
        label=gettext_lazy("What one GPU of a model does a second"),
        required=False,
        max_length=_LINES_MAX_CHARACTERS,
        initial=RATES_EXAMPLE,
        help_text=gettext_lazy("One a line: main prefill=8000 decode=1500, or as a pool's GPUs did: main pool=chat."),
        widget=code(3),
    )

    def clean_calls(self) -> list[Document]:
        return [_call(name, pairs) for name, pairs in _lines(self.cleaned_data["calls"])]

    def clean_rates(self) -> Document:
        return {name: _rates(pairs) for name, pairs in _lines(self.cleaned_data["rates"])}

    def asked(self) -> Document:
        """The body of POST /plans/fan-out."""
        return dict(self.cleaned_data)


def _lines(text: str) -> list[tuple[str, dict[str, str]]]:
    """A name and its pairs, a line."""
    lines = [line.strip().partition(" ") for line in text.splitlines() if line.strip()]
    return [(name[:100], read_pairs(pairs)) for name, _space, pairs in lines]


def _call(name: str, pairs: dict[str, str]) -> Document:
    if unknown := pairs.keys() - _CALL_NAMES:
        known = ", ".join(_CALL_NAMES)
        says = _("“%(part)s” is not known; there are %(known)s.") % {"part": min(unknown)[:50], "known": known}
        raise ValidationError(says, code="unknown")
    made: Document = {"name": name}
    for each, value in pairs.items():
        made[_CALL_NAMES[each]] = value if each == "model" else round(_decimal(value) * _SCALE.get(each, 1))
    return made


def _rates(pairs: dict[str, str]) -> Document:
    names = {"prefill": "prefill_tokens_per_second", "decode": "decode_tokens_per_second"}
    return {names.get(name, name): value if name == "pool" else _decimal(value) for name, value in pairs.items()}


def _decimal(text: str) -> float:
    """Of ASCII digits with a point. Raises ValidationError."""
    if not (text.isascii() and text.replace(".", "", 1).isdigit() and len(text) < 16):
        raise ValidationError(_("“%(part)s” is no number.") % {"part": text[:50]}, code="decimal")
    return float(text)


class PromiseForm(RefusableForm):
    tenant = forms.ChoiceField(label=gettext_lazy("Tenant"))
    tpm = forms.IntegerField(
        label=gettext_lazy("Tokens per minute"),
        help_text=gettext_lazy("Input and output together."),
        min_value=0,
        max_value=MAX_INTEGER,
        widget=numeric(),
    )

    def __init__(self, *args: Any, tenants: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cast(forms.ChoiceField, self.fields["tenant"]).choices = [(name, name) for name in tenants]

    def asked(self) -> Document:
        """The query of GET /plans/promise."""
        return {"tenant": self.cleaned_data["tenant"], "tpm": self.cleaned_data["tpm"]}
