"""What stands in a form of its own: how each kind of value is known, and said in the reader's language."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from django.utils.formats import get_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from controlplane.web.labels import action_label, cause_label, noun_label
from controlplane.web.shown.quantities import lasted
from controlplane.web.shown.rollouts import step_label

# Several sentences may have their mark in them, and so may what engines and commands wrote; nothing else has.
_PLAIN = re.compile("(?:(?!; ).)*", re.DOTALL)
_LIKE = {
    name: re.compile(pattern, re.DOTALL)
    for name, pattern in {
        "said": ".+",
        "reason": ".+",
        "words": ".*",
        "action": "[a-z ]+",
        "time": r"\d{1,9} s",
        "id": r"\d+",
        "of_tenants": r"\d{1,9}(?:,\d{3}){0,5} tenants?",
        "path": r"\S+",
        "command": "the [a-z]+ command",
        "inside": "(?:tensor parallelism within each, )?",
        "when": "(?: in .+)?",
        "snooze": "snoozed until .+ UTC|no longer snoozed, said",
        "severity": "info|warning|critical",
        "standing": "firing|resolved",
        "gone": "removed|moved",
    }.items()
}
_ACTIONS = {
    "start": gettext_noop("start"),
    "stop": gettext_noop("stop"),
    "warm up": gettext_noop("warm up"),
    "drain": gettext_noop("drain"),
    "sleep": gettext_noop("put to sleep"),
    "restart": gettext_noop("restart"),
    "wake": gettext_noop("wake"),
}
_CONDITIONS = {
    "hung": gettext_noop("hung"),
    "paused": gettext_noop("paused"),
    "sleeping": gettext_noop("sleeping"),
    "dead": gettext_noop("dead"),
    "unreachable": gettext_noop("unreachable"),
}
_NOTHING = {"nothing": gettext_noop("none"), "none": gettext_noop("none")}
_GONE = {"removed": gettext_noop("taken away"), "moved": gettext_noop("moved elsewhere")}
_STATES = {
    "info": gettext_noop("info"),
    "warning": gettext_noop("warning"),
    "critical": gettext_noop("critical"),
    "firing": gettext_noop("firing"),
    "resolved": gettext_noop("resolved"),
}
_GROUP = re.compile(r"(?<=\d),(?=\d{3})")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_UNIT = re.compile(r"(?<![\d.,])(-?\d{1,9}(?=[dhm])|-?\d+(?:\.\d+)?(?=m?s))(ms|[dhms])(?![a-z])")


def may_stand(name: str, value: str) -> bool:
    """Whether it may be what stands for a name."""
    return _LIKE.get(name, _PLAIN).fullmatch(value) is not None


def _one_of(words: Mapping[str, str]) -> Callable[[str], str]:
    """One that is not known stands as it is."""
    return lambda text: _(words[text]) if text in words else text


def _time(text: str) -> str:
    return lasted(float(text.removesuffix(" s")))


def _step(text: str) -> str:
    return str(step_label(text))


def _about(text: str) -> str:
    """`vllm, pool chat`, or the kind of an engine alone."""
    kind, mark, pool = text.partition(", pool ")
    return _("%(kind)s, pool %(pool)s") % {"kind": kind, "pool": pool} if mark else text


def _ratio(text: str) -> str:
    """`12.5%`, as templates of rules write it."""
    return _("%(number)s %%") % {"number": _decimal(text.removesuffix("%"))} if text.endswith("%") else text


def _repair(text: str) -> str:
    """`reset gpu`; rows of before have `reset_gpu`."""
    return action_label(text.replace(" ", "_"))


def _regrouped(text: str) -> str:
    """`4,194,304 (138 %)`: digits grouped as the reader does."""
    return _GROUP.sub(str(get_format("THOUSAND_SEPARATOR")), text)


def _of_tenants(text: str) -> str:
    """`1 tenant`, `1,200 tenants`."""
    count = text.partition(" ")[0]
    one_or_more = ngettext("%(count)s tenant", "%(count)s tenants", int(count.replace(",", "")))
    return one_or_more % {"count": _regrouped(count)}


def _duration(text: str) -> str:
    """`1d 2h 3m 4s`, as templates of rules write it."""
    return _UNIT.sub(_in_unit, text)


def _in_unit(found: re.Match[str]) -> str:
    number, unit = found[1], found[2]
    if unit == "d":
        return ngettext("%(count)d day", "%(count)d days", int(number)) % {"count": int(number)}
    units = {"ms": _("%(count)s ms"), "s": _("%(count)s s")}
    if unit in units:
        return units[unit] % {"count": _decimal(number)}
    return {"m": _("%(count)d min"), "h": _("%(count)d h")}[unit] % {"count": int(number)}


def _decimal(number: str) -> str:
    return number.replace(".", str(get_format("DECIMAL_SEPARATOR")))


def grouped(text: str) -> str:
    """`4,096` with the separators of the reader's language; anything else as it stands."""
    if not _GROUPED.fullmatch(text):
        return text
    whole, mark, part = text.partition(".")
    separator = str(get_format("THOUSAND_SEPARATOR"))
    return whole.replace(",", separator) + (str(get_format("DECIMAL_SEPARATOR")) + part if mark else "")


WORDS: Mapping[str, Callable[[str], str]] = {
    "action": _one_of(_ACTIONS),
    "condition": _one_of(_CONDITIONS),
    "gone": _one_of(_GONE),
    "severity": _one_of(_STATES),
    "new_severity": _one_of(_STATES),
    "standing": _one_of(_STATES),
    "step": _step,
    "time": _time,
    "repair": _repair,
    "cause": cause_label,
    "noun": noun_label,
    "kind": noun_label,
    "value": _one_of(_NOTHING),
    "allowed": _one_of(_NOTHING),
    "about": _about,
    "grouped": _regrouped,
    "held": _regrouped,
    "unbounded": _regrouped,
    "of_tenants": _of_tenants,
    "size": _decimal,
    "served": _decimal,
    "ratio": _ratio,
    "duration": _duration,
}
