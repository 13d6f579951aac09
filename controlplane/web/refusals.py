"""Why a form is refused, as a sentence in the reader's language. The services speak English, to scripts too."""

from __future__ import annotations

import re

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.core import fields
from controlplane.tenants.services.schedule import CLOCK_TIME_SAYS
from controlplane.web.shown.spoken import spoken
from wire.problems import Problem

_BOUND = re.compile(r"Expected `int` (>=|<=) (-?\d+)")
# Why no agent can be asked for an act.
_ACTS = {
    "no_agent": gettext_lazy("The node has no enrolled agent that could do it."),
    "no_node": gettext_lazy("The engine has no node whose agent could act on it."),
    "too_many": gettext_lazy("Too many acts of this node are open. Wait for them, or cancel some."),
}
_NOT_ALLOWED = re.compile(r"the policy of node '(.*)' does not allow (.*) on '(.*)'")
_CONTROL = re.compile(r"(U\+[0-9A-F]+) is a control character; leave it out")
_MISSING = re.compile(r"(?:model|priority class|session limits|cache policy) '(.*)' does not exist")


def sentence(problem: Problem) -> str:
    """A rule without a sentence of its own keeps the service's words and its name."""
    if problem.rule in ("range", "type") and (bound := _BOUND.match(problem.message)):
        text = _("Give a whole number, %(bound)s or more.") if bound[1] == ">=" else _("Give %(bound)s or less.")
        return text % {"bound": number_format(int(bound[2]), use_l10n=True, force_grouping=True)}
    if problem.rule == "pattern" and problem.message == fields.LIKE_NAME.says:
        return _("Give 1 to 63 of a-z, 0-9, '.', '_' and '-', the first a letter or digit.")
    if problem.rule == "pattern" and problem.message == CLOCK_TIME_SAYS:
        return _("Give times from 00:00 to 23:59, such as 22:00-06:30.")
    if problem.rule == "one_of" and "/schedule/" in problem.path:
        return _("Give at least one limit, such as tpm_limit=90000.")
    if problem.rule == "unique":
        return _("This name is taken. Choose another.")
    if problem.rule == "reference" and (missing := _MISSING.fullmatch(problem.message)):
        return _("“%(name)s” does not exist any more. Choose another.") % {"name": missing[1]}
    if problem.rule == "one_of" and problem.path == "/default_priority_class":
        return _("The default must be one of the priority classes that are ticked.")
    if problem.rule == "control_character" and (control := _CONTROL.fullmatch(problem.message)):
        return _("%(character)s is a control character. Leave it out.") % {"character": control[1]}
    if problem.rule == "time_zone":
        return _("Give an IANA time zone, such as Europe/Istanbul.")
    if problem.rule == "key":
        return _("A name consists of a-z, 0-9 and '-', and begins with a letter.")
    if problem.rule == "type" and "matching regex" in problem.message:
        return _("This is not in the form that is asked for here.")
    if problem.rule == "scope_raise":
        return _("People of a tenant may lower its limits, no more. Ask an operator of the whole fleet.")
    if problem.rule in _ACTS:
        return str(_ACTS[problem.rule])
    if problem.rule == "not_allowed" and (lacking := _NOT_ALLOWED.fullmatch(problem.message)):
        text = _(
            "The policy of node %(node)s does not allow %(acts)s on %(engine)s. Name it there under engines, "
            "%(engine)s, allow: in the file that HEADWORKS_AGENT_POLICY_FILE of the node's agent names. Then start the "
            "agent anew."
        )
        return text % {"node": lacking[1], "acts": lacking[2], "engine": lacking[3]}
    return f"{spoken(problem.message)} ({problem.rule})"
