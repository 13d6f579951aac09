"""What services and agents say in English, in the reader's language: each sentence is known by its form.

They, and the rows that keep what they said, speak English, to scripts too. A sentence without a form stands as it is.
A form's names are kept as they stand but for those of `_PARTS`, which are sentences, lists or values.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from django.utils.translation import get_language
from django.utils.translation import gettext as _

from controlplane.diagnosis.texts import PLAIN_LANGUAGE
from controlplane.web.shown.spoken import (
    acts,
    compatibility,
    events,
    incidents,
    plans,
    repairs,
    rollouts,
    rule_pack,
    what_if,
    writes,
)
from controlplane.web.shown.spoken.parts import WORDS, grouped, may_stand

FORMS = (
    *rollouts.FORMS,
    *writes.FORMS,
    *repairs.FORMS,
    *compatibility.FORMS,
    *acts.FORMS,
    *events.FORMS,
    *incidents.FORMS,
    *plans.FORMS,
    *what_if.FORMS,
)
# A sentence holds another, and that one the next; nobody says more than this many in each other.
_DEPTH_MAX = 8
_PARTS_MAX = 1 + max(form.count("; ") for form in FORMS)
_NAME = re.compile(r"%\((\w+)\)s")
_MORE = re.compile(r"(.+) and (\d+) more", re.DOTALL)
_AFTER_A_NAME = re.compile(r"((?:rank )?\S+): (.+)", re.DOTALL)
_Said = Callable[[str, int], str]


class _Form(NamedTuple):
    """`words`: what it says itself, before, between and after its names."""

    text: str
    words: tuple[str, ...]
    names: tuple[str, ...]


class _Forms(NamedTuple):
    """`by_word`: those that begin with a word of their own, by it. `open`: those that do not."""

    by_word: Mapping[str, Sequence[_Form]]
    open: Sequence[_Form]

    def begun(self, text: str) -> Sequence[_Form]:
        return self.by_word.get(text.partition(" ")[0], ())


def spoken(text: Any) -> str:
    """In the language of the page that is made."""
    said = str(text or "")
    return said if (get_language() or PLAIN_LANGUAGE) == PLAIN_LANGUAGE else _spoken(said, 0)


def _spoken(text: str, depth: int) -> str:
    """Of several reasons each is a sentence, or more than one where a form is so long."""
    if depth > _DEPTH_MAX:
        return text
    rest, said = text.split("; "), list[str]()
    while rest:
        taken, words = _first_of(rest, depth)
        said.append(words)
        rest = rest[taken:]
    return "; ".join(said)


def _first_of(parts: list[str], depth: int) -> tuple[int, str]:
    """How many of these parts are said first, and how: all of them, or as many as a form can hold."""
    for taken in (len(parts), *range(min(_PARTS_MAX, len(parts) - 1), 0, -1)):
        if (words := _sentence("; ".join(parts[:taken]), depth)) is not None:
            return taken, words
    return 1, parts[0]


def _sentence(text: str, depth: int) -> str | None:
    """One sentence: of many alike, or said of somebody who is named before it."""
    if text.endswith(" more") and (found := _MORE.fullmatch(text)) and (first := _of_a_form(found[1], depth)):
        return _and_more(first, found[2])
    return _of_a_form(text, depth)


def _of_a_form(text: str, depth: int) -> str | None:
    """By a form that begins with its own words, sooner than by one whose first name might be any words."""
    forms = _forms()
    if (said := _of_these(forms.begun(text), text, depth)) is not None:
        return said
    if found := _AFTER_A_NAME.fullmatch(text):
        for some in (forms.begun(found[2]), forms.open):
            if (said := _of_these(some, found[2], depth)) is not None:
                return f"{found[1]}: {said}"
    return _of_these(forms.open, text, depth)


def _of_these(forms: Sequence[_Form], text: str, depth: int) -> str | None:
    for form in forms:
        if text.endswith(form.words[-1]) and (values := _values(form, text)) is not None:
            return _(form.text) % {name: _part(name, value, depth) for name, value in values.items()}
    return None


def _values(form: _Form, text: str) -> dict[str, str] | None:
    """Its names and what stands for them: each ends where the words after it come first, the last before the end."""
    begin, end = form.words[0], form.words[-1]
    if not form.names:
        return {} if text == begin else None
    if not (text.startswith(begin) and text.endswith(end)):
        return None
    place, last, values = len(begin), len(text) - len(end), list[str]()
    for words in form.words[1:-1]:
        found = text.find(words, place, last)
        if found < 0:
            return None
        values.append(text[place:found])
        place = found + len(words)
    if place > last:
        return None
    values.append(text[place:last])
    named = dict(zip(form.names, values, strict=True))
    return named if all(may_stand(name, value) for name, value in named.items()) else None


@cache
def _forms() -> _Forms:
    """Of each kind those that say most of it themselves first."""
    found = sorted(map(_form, dict.fromkeys((*FORMS, *rule_pack.forms()))), key=lambda form: -sum(map(len, form.words)))
    by_word: defaultdict[str, list[_Form]] = defaultdict(list)
    for form in found:
        by_word[_first_word(form)].append(form)
    return _Forms(by_word, by_word.pop("", []))


def _first_word(form: _Form) -> str:
    """Empty where a name stands for it, or in it."""
    word, mark, _rest = form.words[0].partition(" ")
    return word if mark or not form.names else ""


def _form(text: str) -> _Form:
    # Every other part that the names cut it into is a name.
    parts = _NAME.split(text.replace("%%", "%"))
    return _Form(text, tuple(parts[::2]), tuple(parts[1::2]))


def _part(name: str, value: str, depth: int) -> str:
    if part := _PARTS.get(name):
        return part(value, depth + 1)
    return grouped(WORDS[name](value) if name in WORDS else value)


def _items(text: str, depth: int) -> str:
    """`name: why, name: why and 2 more`."""
    return _names(", ".join(_item(each, depth) for each in text.split(", ")), depth)


def _item(text: str, depth: int) -> str:
    name, mark, why = text.partition(": ")
    return f"{name}: {_spoken(why, depth)}" if mark else text


def _names(text: str, depth: int) -> str:
    if found := _MORE.fullmatch(text):
        return _and_more(found[1], found[2])
    return WORDS["value"](text)


def _and_more(text: str, count: str) -> str:
    return _("%(names)s and %(count)s more") % {"names": text, "count": count}


# What is said within what is said.
_PARTS: Mapping[str, _Said] = {
    **dict.fromkeys(
        (
            "said", "reason", "where", "command", "context", "replicas", "inside", "how", "gpu", "least",
            "limit", "state", "holder", "when", "snooze", "attempts",
        ),
        _spoken,
    ),
    "items": _items,
    "names": _names,
}  # fmt: skip
