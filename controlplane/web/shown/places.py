"""What a finding is about, as people read it: `pool/kv` is Pool kv, and leads to its page."""

from __future__ import annotations

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

_NAMED = {
    "pool": gettext_noop("Pool %(name)s"),
    "engine": gettext_noop("Engine %(name)s"),
    "node": gettext_noop("Node %(name)s"),
    "tenant": gettext_noop("Tenant %(name)s"),
    "gateway": gettext_noop("Gateway %(name)s"),
}
_PAGES = {"pool": "web:pool", "node": "web:node", "tenant": "web:tenant"}


def place(subject: str) -> str:
    """One of a kind that a later version has keeps its name."""
    kind, _slash, name = subject.partition("/")
    return _(_NAMED[kind]) % {"name": name} if kind in _NAMED else subject


def place_address(subject: str) -> str:
    """Empty: it has no page of its own."""
    kind, _slash, name = subject.partition("/")
    try:
        return reverse(_PAGES[kind], args=[name]) if kind in _PAGES else ""
    except NoReverseMatch:
        return ""
