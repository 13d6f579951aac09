"""What services say in English, in the reader's language: each sentence is known by its form.

Services, and the rows that keep what they said, speak English, to scripts too. A sentence without a form stands as it
is. A form's names are kept as they stand but for those of `_PARTS`, which are sentences or lists themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from django.utils.translation import get_language, gettext_noop
from django.utils.translation import gettext as _

from controlplane.diagnosis.texts import PLAIN_LANGUAGE
from controlplane.web.labels import noun_label
from controlplane.web.shown.quantities import lasted
from controlplane.web.shown.rollouts import step_label

FORMS = (
    # Rollouts: why one goes back, stops or waits.
    gettext_noop("%(names)s refuses its configuration; mend that first"),
    gettext_noop("%(names)s refuses the configuration; mend that first"),
    gettext_noop("%(names)s refuses the configuration"),
    gettext_noop("%(names)s is not configured any more"),
    gettext_noop("nothing is in its way"),
    gettext_noop("do not answer yet: %(names)s"),
    gettext_noop("all answer"),
    gettext_noop("not ready: %(items)s"),
    gettext_noop("all are well"),
    gettext_noop("probe %(probe)s failed"),
    gettext_noop("its KV capacity is not told"),
    gettext_noop("no node's policy allows it: their first requests warm them"),
    gettext_noop("at most %(most)s may be out of service, and now %(items)s"),
    gettext_noop("takes %(names)s out of service"),
    gettext_noop("no gateway sends anything there"),
    gettext_noop("no other engine of the pool takes work now: %(names)s"),
    gettext_noop("puts %(names)s back into service"),
    gettext_noop("in service"),
    gettext_noop("waits for %(names)s"),
    gettext_noop("it is not configured any more"),
    gettext_noop("its agent has not told of it since"),
    gettext_noop("not as it was: %(items)s"),
    gettext_noop("well, with its KV capacity"),
    gettext_noop("its KV capacity fell from %(before)s to %(now)s tokens"),
    gettext_noop("publishes the version"),
    gettext_noop("published"),
    gettext_noop("somebody changed %(names)s meanwhile; resume takes it as it is now"),
    gettext_noop("moves %(percent)s %% to %(pool)s"),
    gettext_noop("every gateway runs it"),
    gettext_noop("%(names)s is not heard of"),
    gettext_noop("watched for %(lasted)s of %(seconds)s s"),
    gettext_noop("too few requests yet to judge %(names)s"),
    gettext_noop("too few requests to judge %(names)s; resume goes on without"),
    gettext_noop("went on without %(names)s: too few requests"),
    gettext_noop("every condition held"),
    gettext_noop("both sides take what the other cannot"),
    gettext_noop("nobody looked for a while: it is watched anew"),
    gettext_noop("no answer to %(names)s"),
    gettext_noop("waits for agents to tell of %(names)s"),
    gettext_noop("the old side is kept warm"),
    gettext_noop("the old side is kept warm, %(lasted)s of %(seconds)s s"),
    gettext_noop("takes the old side out of the routes"),
    gettext_noop("the old side stays, and no route leads to it"),
    gettext_noop(
        "the new side cannot serve (%(items)s), so the old one is not put away; return gives it the traffic back"
    ),
    gettext_noop("no node's policy lets %(names)s be drained and %(action)s: they stay, out of service"),
    gettext_noop("the old side is put away"),
    gettext_noop("it takes no new work"),
    gettext_noop("gives everything back to the old side"),
    gettext_noop("waits for the end of %(names)s"),
    gettext_noop("the new engines are out of service"),
    gettext_noop("%(names)s cannot serve and stays out of service"),
    gettext_noop("all are in service"),
    gettext_noop("as it was before"),
    gettext_noop("after %(seconds)s s %(said)s"),
    gettext_noop("asks to %(action)s: %(names)s"),
    gettext_noop("could not %(action)s: the node of %(names)s is not heard of"),
    gettext_noop("could not %(action)s: %(items)s"),
    gettext_noop("waits to %(action)s: %(names)s"),
    gettext_noop("no agent and no gateway is heard of, so it waits"),
    gettext_noop("every step is done"),
    gettext_noop("%(step)s begins"),
    gettext_noop("the new side lost %(items)s"),
    gettext_noop("no engine of the new side takes work any more"),
    gettext_noop("not healthy: %(names)s"),
    gettext_noop("%(count)s times in a row there was no answer to %(names)s"),
    gettext_noop("the old side cannot serve either (%(items)s)"),
    gettext_noop("the old side has no engine"),
    gettext_noop("%(said)s, so it stays"),
    gettext_noop("cannot be written: %(said)s"),
    gettext_noop("taken back by %(who)s"),
    gettext_noop("its node is not heard of"),
    gettext_noop("it does not answer"),
    gettext_noop("%(act)s is asked of it"),
    gettext_noop("it is %(condition)s"),
    gettext_noop("nobody knows of the act any more"),
    gettext_noop("stage %(stage)s changes route %(names)s; promote it or take it back first"),
    # Why a rollout cannot begin.
    gettext_noop("engine '%(engine)s' has no node whose agent could act on it"),
    gettext_noop("the policy of node '%(node)s' does not allow %(acts)s on '%(engine)s'"),
    gettext_noop("engine '%(engine)s' is held out of service by %(holder)s"),
    gettext_noop("no rollout that has ended holds engine '%(engine)s' out of service"),
    gettext_noop("pool '%(pool)s' has no engine"),
    gettext_noop("pool '%(pool)s' has no engine '%(engine)s'"),
    gettext_noop("routes lead to pool '%(pool)s', and no other engine of it takes work; leave one of these"),
    gettext_noop(
        "%(count)s engines of pool '%(pool)s' take work and routes lead there; give less than that, so that one is "
        "always left"
    ),
    gettext_noop("no route leads to pool '%(pool)s'; there is none to move"),
    gettext_noop("%(names)s leads to pool '%(pool)s' already; the new side must have no traffic yet"),
    # What a write may do, and is worth a second look.
    gettext_noop(
        "the limits of %(bounded)s tenants promise %(promised)s tokens of context in pool '%(pool)s', and its engines "
        "may hold %(held)s; tenants without a bound: %(unbounded)s; lower limits or add engines (GET /api/v1/capacity "
        "shows the shares)"
    ),
    gettext_noop(
        "no engine of pool '%(pool)s' takes work any more, and these routes lead to it: %(names)s; what no fallback "
        "takes is refused with 503"
    ),
    gettext_noop(
        "pool '%(pool)s' would have no engine left, and these routes lead to it: %(names)s; change the routes first, "
        "or cordon the engine"
    ),
    gettext_noop("this engine would go"),
    gettext_noop("%(count)s of %(all)s would go, more than %(percent)s %% (HEADWORKS_CONFIG_REMOVALS_PERCENT)"),
    gettext_noop("1 key would go with it"),
    gettext_noop("%(count)s keys would go with it"),
    gettext_noop("deleted with it: 1 key, for good"),
    gettext_noop("deleted with it: %(count)s keys, for good"),
    gettext_noop("no alert that fires is matched"),
    gettext_noop("%(count)s alerts that fire are matched: %(names)s"),
    gettext_noop("engine '%(engine)s' was not asked to %(action)s: %(said)s"),
    gettext_noop("there is no tenant '%(tenant)s' now; nothing is open to its people until it is made"),
    gettext_noop("it ends at %(at)s, with the token that makes it; for a longer one run headworks create-token"),
    gettext_noop("lever %(lever)s of this finding is still being verified: which of the two helped will not be known"),
    # An address of what there is not.
    gettext_noop("there is no %(noun)s '%(name)s'"),
    # Staged changes.
    gettext_noop("its targets run it"),
    gettext_noop("healthy"),
    # Levers of the diagnosis.
    gettext_noop("the finding still stands %(time)s after all ran the change"),
    gettext_noop("clear for %(time)s"),
    gettext_noop("refused by %(names)s"),
    gettext_noop("not run by %(names)s after %(time)s"),
    gettext_noop("not yet run by %(names)s"),
    gettext_noop("the finding is over"),
    gettext_noop("its detector offers it no more"),
    # Repairs.
    gettext_noop("the breaker is tripped: %(said)s"),
    gettext_noop("waits for the node to be cordoned, by a person or by the cordon policy"),
    gettext_noop("the node takes no new work"),
    gettext_noop("the node's policy does not allow %(names)s"),
    gettext_noop("waits for what holds out %(names)s"),
    gettext_noop("drains %(names)s"),
    gettext_noop("no request runs on the node"),
    gettext_noop("could not be drained: %(items)s"),
    gettext_noop("could not be repaired: %(items)s"),
    gettext_noop("looks whether all is well"),
    gettext_noop("starts the engines again"),
    gettext_noop("the fault came back: %(cause)s"),
    gettext_noop("not well after the repair: %(names)s"),
    gettext_noop("waits for %(names)s to be well"),
    gettext_noop("well again; the cordon stays for %(names)s"),
    gettext_noop("the fault has ended; nothing more is done"),
    gettext_noop("the node was uncordoned: a person's hand goes before"),
    gettext_noop("begun by %(who)s: %(reason)s"),
    gettext_noop("cancelled by %(who)s: %(reason)s"),
    gettext_noop("this node was repaired %(times)s times within seven days; %(most)s is the most without a person"),
    gettext_noop("the same fault came %(times)s times within a day; %(most)s is the most without a person"),
    # Why engines may not serve side by side.
    gettext_noop("pool '%(pool)s': %(said)s"),
    gettext_noop("its engines differ in %(fact)s: %(values)s"),
    gettext_noop("engine '%(engine)s' has %(values)s, which never go together; %(reason)s"),
    gettext_noop("engine '%(engine)s' has %(fact)s %(value)s; %(condition)s is needed; %(reason)s"),
    gettext_noop("%(said)s, its model %(wanted)s; %(reason)s"),
    gettext_noop("engine '%(engine)s' has %(fact)s %(value)s"),
    gettext_noop("%(fact)s of %(names)s is not known"),
    # The reasons of the rules that come with the program.
    gettext_noop("engines of several kinds answer the same request differently"),
    gettext_noop("two versions differ in defaults, in API fields and in what they answer"),
    gettext_noop("two versions of the backend differ in defaults, in API fields and in what they answer"),
    gettext_noop("a prompt must be the same tokens, whichever engine gets it"),
    gettext_noop("a conversation must be the same prompt, whichever engine gets it"),
    gettext_noop("a prompt that fits one engine must fit the others"),
    gettext_noop("gateways measure prompts by the files of the model"),
    gettext_noop("gateways let prompts pass up to the model's max_context_tokens"),
    gettext_noop(
        "Triton up to 25.09 imports vllm.engine.metrics, which vLLM has no more since 0.11.2: the model does not load"
    ),
    gettext_noop("it takes response_format and does not hold to it"),
)
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
# What is several sentences may have their mark in it; nothing else has.
_VALUES = {"said": ".+", "reason": ".+", "action": "[a-z ]+", "time": r"\d+ s"}
_NAME = re.compile(r"%\((\w+)\)s")
_MORE = re.compile(r"(.+) and (\d+) more", re.DOTALL)


class _Form(NamedTuple):
    text: str
    pattern: re.Pattern[str]


def spoken(text: Any) -> str:
    """In the language of the page that is made."""
    return str(text or "") if (get_language() or PLAIN_LANGUAGE) == PLAIN_LANGUAGE else _spoken(str(text or ""))


def _spoken(text: str) -> str:
    """Of several reasons each is a sentence."""
    said, rest = [], text
    while (whole := _of_a_form(rest)) is None and "; " in rest:
        first, _mark, rest = rest.partition("; ")
        said.append(_of_a_form(first) or first)
    return "; ".join([*said, rest if whole is None else whole])


def _of_a_form(text: str) -> str | None:
    for form in _forms():
        if found := form.pattern.fullmatch(text):
            return _(form.text) % {name: _part(name)(value) for name, value in found.groupdict().items()}
    return None


@cache
def _forms() -> list[_Form]:
    """Those that say most of it themselves first."""
    forms = [_Form(text, re.compile(_pattern(text), re.DOTALL)) for text in FORMS]
    return sorted(forms, key=lambda form: -len(_NAME.sub("", form.text)))


def _pattern(text: str) -> str:
    # Every other part that the names cut it into is a name.
    parts = _NAME.split(text.replace("%%", "%"))
    return "".join(_value(part) if place % 2 else re.escape(part) for place, part in enumerate(parts))


def _value(name: str) -> str:
    return f"(?P<{name}>{_VALUES.get(name, '(?:(?!; ).)+')})"


def _part(name: str) -> Callable[[str], str]:
    return _PARTS.get(name, str)


def _action(text: str) -> str:
    return _(_ACTIONS.get(text, text))


def _condition(text: str) -> str:
    return _(_CONDITIONS.get(text, text))


def _items(text: str) -> str:
    """`name: why, name: why and 2 more`."""
    return _names(", ".join(_item(each) for each in text.split(", ")))


def _item(text: str) -> str:
    name, mark, why = text.partition(": ")
    return f"{name}: {_spoken(why)}" if mark else text


def _names(text: str) -> str:
    if found := _MORE.fullmatch(text):
        return _("%(names)s and %(count)s more") % {"names": found[1], "count": found[2]}
    return text


def _time(text: str) -> str:
    return lasted(float(text.removesuffix(" s")))


def _step(text: str) -> str:
    return str(step_label(text))


_PARTS: Mapping[str, Callable[[str], str]] = {
    "said": _spoken,
    "reason": _spoken,
    "items": _items,
    "names": _names,
    "action": _action,
    "condition": _condition,
    "step": _step,
    "time": _time,
    "noun": noun_label,
}
