"""Summaries and descriptions of the rules that come with the program, as forms: made from the rules' own templates.

So a rule that is changed has no translation any more, and is not said in the words of the one before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from controlplane.alerts.services.rule_pack import pack_rules

TEXTS = ("summary", "description")
_HOLE = re.compile(r"\{\{ \$(?:labels\.(?P<label>\w+)|value \| (?P<function>\w+)) \}\}")
# By the function that a template gives its value to.
_VALUES = {"humanize": "value", "humanizePercentage": "ratio", "humanizeDuration": "duration"}


@cache
def forms() -> tuple[str, ...]:
    """Each once."""
    return tuple(dict.fromkeys(form for _rule, form in by_rule()))


def by_rule() -> Iterator[tuple[str, str]]:
    """Every rule's name with each of its forms. A template that holds anything else is a form of itself alone."""
    for rule in pack_rules():
        for name in TEXTS:
            if text := rule.fields["annotations"].get(name):
                yield rule.name, _form(text)


def _form(template: str) -> str:
    return _HOLE.sub(_named, template.replace("%", "%%"))


def _named(hole: re.Match[str]) -> str:
    return f"%({hole['label'] or _VALUES[hole['function']]})s"
