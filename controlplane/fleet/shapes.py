"""What is known of engines, held against rules about it: which may serve side by side, which pairs are known to fail.

Pure. A fact that nobody told is neither fine nor broken: it is said to be unknown, and the rule decides whether that
stops a rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from controlplane.core import fields as f

# Facts that every part of the program calls alike; beside them stand the versions and probes that agents name.
KIND, VERSION, FRONTEND, VLLM = "kind", "version", "frontend", "vllm"
TOKENIZER, CHAT_TEMPLATE, MAX_LENGTH = "tokenizer", "chat_template", "max_length"
PROBE = "probe_"
_COMPARES = ("<", ">", "=", "!", "~")
_LISTED_MAX = 5

State = Literal["broken", "unknown"]


@dataclass(frozen=True)
class Shape:
    """One engine of a pool: its facts as text, such as `{"kind": "triton", "frontend": "2.61.0"}`; unknown: absent.

    `of_model`: the same facts as the model that clients ask for has them; what it does not say is absent.
    """

    engine: str
    pool: str
    facts: Mapping[str, str]
    of_model: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """What a rule has against engines. `stops`: no requests may be sent there; else it is told and no more.

    `state`: `broken`, or `unknown` where a fact that the rule asks for was told by nobody. `subjects`: the engines.
    """

    rule: str
    stops: bool
    message: str
    subjects: tuple[str, ...]
    state: State = "broken"
    pool: str = ""


def _condition(text: str) -> str:
    if text.startswith(_COMPARES):
        try:
            SpecifierSet(text)
        except InvalidSpecifier as error:
            says = "give a value, or comparisons as PEP 440 has them, such as >=0.11.2,<0.12"
            raise PydanticCustomError("condition", "{says}", {"says": says}) from error
    return text


FactName = Annotated[
    str,
    f.Like(
        Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,63}$(?!\n)")],
        "give a fact's name: 1 to 64 of a-z, 0-9 and _, the first a letter",
    ),
]
Condition = Annotated[f.Text, Field(min_length=1, max_length=200), AfterValidator(_condition)]
Conditions = Annotated[dict[FactName, Condition], Field(min_length=1, max_length=16)]
FactNames = Annotated[list[FactName], Field(min_length=1, max_length=16), AfterValidator(f.distinct)]


class RuleForm(f.Fields):
    """One of `every`, `never`, `needs` and `as_model`.

    `every`: facts in which all engines of a pool agree. `never`: conditions that hold of no engine all at once.
    `needs`: conditions that hold of each. `as_model`: facts that are as the pool's model has them; of `max_length` at
    least as much. `where`: the engines that the rule is about; absent: all. A condition is a value, or comparisons of
    versions as PEP 440 has them. `unknown_stops`: a fact that nobody told stops, too.
    """

    every: FactNames | None = None
    never: Conditions | None = None
    needs: Conditions | None = None
    as_model: FactNames | None = None
    where: Conditions | None = None
    unknown_stops: bool = False

    @model_validator(mode="after")
    def _one(self) -> RuleForm:
        given = [name for name in ("every", "never", "needs", "as_model") if getattr(self, name) is not None]
        if len(given) != 1:
            says = "give exactly one of every, never, needs and as_model"
            raise PydanticCustomError("one_of", "{says}", {"says": says})
        return self


@dataclass(frozen=True)
class Rule:
    """`reason`: why it is one, for people. `stops`: whether what breaks it may take no requests."""

    name: str
    form: RuleForm
    reason: str
    stops: bool = True


def judge_shapes(shapes: Iterable[Shape], rules: Iterable[Rule]) -> list[Finding]:
    """What the rules have against the engines, pool by pool, what stops first."""
    pools: dict[str, list[Shape]] = {}
    for shape in sorted(shapes, key=lambda each: (each.pool, each.engine)):
        pools.setdefault(shape.pool, []).append(shape)
    ordered = sorted(rules, key=lambda rule: rule.name)
    found = [finding for pool, members in pools.items() for rule in ordered for finding in _judged(rule, pool, members)]
    return sorted(found, key=lambda finding: not finding.stops)


def holds(condition: str, value: str | None) -> bool | None:
    """Whether a fact meets a condition; None: it is not known, or is no version that could be compared."""
    if value is None:
        return None
    if not condition.startswith(_COMPARES):
        return value == condition
    try:
        # A version that somebody built for himself (0.11.2.dev3+g1a2b3c) is one as well.
        return SpecifierSet(condition).contains(Version(value), prereleases=True)
    except InvalidVersion:
        return None


def all_hold(conditions: Mapping[str, str], facts: Mapping[str, str]) -> bool | None:
    """Whether all do. One that does not hold decides, whatever else is unknown."""
    results = [holds(condition, facts.get(name)) for name, condition in conditions.items()]
    return False if False in results else None if None in results else True


@dataclass(frozen=True)
class _Told:
    """Makes a rule's findings on one pool."""

    rule: Rule
    pool: str

    def broken(self, message: str, subjects: Iterable[Shape]) -> Finding:
        return self._finding(self.rule.stops, f"{message}; {self.rule.reason}", subjects, "broken")

    def unknown(self, what: str, subjects: Sequence[Shape]) -> list[Finding]:
        if not subjects:
            return []
        message = f"{what} of {_some(shape.engine for shape in subjects)} is not known"
        stops = self.rule.stops and self.rule.form.unknown_stops
        return [self._finding(stops, message, subjects, "unknown")]

    def _finding(self, stops: bool, message: str, subjects: Iterable[Shape], state: State) -> Finding:
        names = tuple(shape.engine for shape in subjects)
        return Finding(self.rule.name, stops, f"pool {self.pool!r}: {message}", names, state, self.pool)


def _judged(rule: Rule, pool: str, members: list[Shape]) -> list[Finding]:
    form, told = rule.form, _Told(rule, pool)
    where = form.where or {}
    concerned = [(shape, all_hold(where, shape.facts)) for shape in members]
    unclear = [shape for shape, verdict in concerned if verdict is None]
    shapes = [shape for shape, verdict in concerned if verdict]
    return [*told.unknown(_of(where), unclear), *_JUDGES[_asked(form)](told, form, shapes)]


def _asked(form: RuleForm) -> str:
    return next(name for name in _JUDGES if getattr(form, name) is not None)


def _every(told: _Told, form: RuleForm, shapes: list[Shape]) -> list[Finding]:
    found = []
    for fact in form.every or ():
        by_value: dict[str, list[str]] = {}
        for shape in shapes:
            if fact in shape.facts:
                by_value.setdefault(shape.facts[fact], []).append(shape.engine)
        if len(by_value) > 1:
            said = "; ".join(f"{_short(value)} on {_some(names)}" for value, names in sorted(by_value.items()))
            found.append(told.broken(f"its engines differ in {fact}: {said}", shapes))
        # One engine alone agrees with itself.
        silent = [shape for shape in shapes if fact not in shape.facts]
        found += told.unknown(fact, silent if len(shapes) > 1 else [])
    return found


def _never(told: _Told, form: RuleForm, shapes: list[Shape]) -> list[Finding]:
    conditions = form.never or {}
    verdicts = [(shape, all_hold(conditions, shape.facts)) for shape in shapes]
    hit = [shape for shape, verdict in verdicts if verdict]
    found = [
        told.broken(f"engine {shape.engine!r} has {_values(conditions, shape)}, which never go together", [shape])
        for shape in hit
    ]
    return [*found, *told.unknown(_of(conditions), [shape for shape, verdict in verdicts if verdict is None])]


def _needs(told: _Told, form: RuleForm, shapes: list[Shape]) -> list[Finding]:
    found = []
    for fact, condition in (form.needs or {}).items():
        verdicts = [(shape, holds(condition, shape.facts.get(fact))) for shape in shapes]
        for shape, verdict in verdicts:
            if verdict is False:
                message = f"engine {shape.engine!r} has {fact} {_short(shape.facts[fact])}; {condition} is needed"
                found.append(told.broken(message, [shape]))
        found += told.unknown(fact, [shape for shape, verdict in verdicts if verdict is None])
    return found


def _as_model(told: _Told, form: RuleForm, shapes: list[Shape]) -> list[Finding]:
    """Where the model itself does not say, there is nothing to differ from."""
    found = []
    for fact in form.as_model or ():
        asked = [shape for shape in shapes if fact in shape.of_model]
        for shape in asked:
            if fact in shape.facts and not _fits(fact, shape.facts[fact], shape.of_model[fact]):
                says = f"engine {shape.engine!r} has {fact} {_short(shape.facts[fact])}"
                found.append(told.broken(f"{says}, its model {_short(shape.of_model[fact])}", [shape]))
        found += told.unknown(fact, [shape for shape in asked if fact not in shape.facts])
    return found


_JUDGES: dict[str, Callable[[_Told, RuleForm, list[Shape]], list[Finding]]] = {
    "every": _every,
    "never": _never,
    "needs": _needs,
    "as_model": _as_model,
}


def _fits(fact: str, has: str, wanted: str) -> bool:
    if fact == MAX_LENGTH and has.isdigit() and wanted.isdigit():
        return int(has) >= int(wanted)
    return has == wanted


def _of(conditions: Mapping[str, Any]) -> str:
    return " and ".join(conditions)


def _values(conditions: Mapping[str, str], shape: Shape) -> str:
    return " with ".join(f"{fact} {_short(shape.facts[fact])}" for fact in sorted(conditions))


def _short(value: str) -> str:
    """Digests by their beginning, as people read them."""
    return f"{value[:12]}…" if len(value) == 64 else value


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = len(listed) - _LISTED_MAX
    return ", ".join(listed[:_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
