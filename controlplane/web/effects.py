"""Whom a write that takes capacity or traffic away is about: the tenants whose requests came there last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlplane.telemetry.promql.written import one_of
from controlplane.web.measured import Question, in_last_hour, soon
from controlplane.web.templatetags.headworks import grouped

NAMED_MAX = 5
WAIT_SECONDS = 2.0


def requests_query(names: Collection[str], label: str = "pool") -> str:
    """PromQL of how many requests each tenant sent to these pools, or of these classes, in the last hour."""
    return in_last_hour(f"headworks_gateway_requests_total{{{label}=~{one_of(names)}}}", "tenant")


def tenants_of(pools: Collection[str]) -> str:
    """A sentence about who sent how many requests to these pools in the last hour; empty where nobody did.

    Where the metrics store does not answer, it says that it is not known.
    """
    return _said(requests_query(pools), _there) if pools else ""


def tenants_of_class(name: str) -> str:
    """As `tenants_of`, about requests of a priority class."""
    return tenants_of_classes([name])


def tenants_of_classes(names: Collection[str]) -> str:
    """As `tenants_of`, about requests of any of these priority classes."""
    sentence = _of_class if len(names) == 1 else _of_classes
    return _said(requests_query(names, "priority_class"), sentence) if names else ""


def _said(promql: str, sentence: Callable[[int], str]) -> str:
    answer = soon({"requests": Question(promql, ("tenant",))}, WAIT_SECONDS)
    if answer.missing:
        return _("Who sent such requests in the last hour is not known: the metrics store does not answer.")
    found = answer.all("requests")
    return in_words({tenant: round(count) for (tenant,), count in found.items() if round(count) > 0}, sentence)


def _there(requests: int) -> str:
    return ngettext(
        "In the last hour %(tenants)s sent %(count)s request there.",
        "In the last hour %(tenants)s sent %(count)s requests there.",
        requests,
    )


def _of_class(requests: int) -> str:
    return ngettext(
        "In the last hour %(tenants)s sent %(count)s request of this class.",
        "In the last hour %(tenants)s sent %(count)s requests of this class.",
        requests,
    )


def _of_classes(requests: int) -> str:
    return ngettext(
        "In the last hour %(tenants)s sent %(count)s request of these classes.",
        "In the last hour %(tenants)s sent %(count)s requests of these classes.",
        requests,
    )


def in_words(requests: Mapping[str, int], sentence: Callable[[int], str] = _there) -> str:
    """Tenant → requests, as a sentence: those that sent the most by name, then how many others there are."""
    if not requests:
        return ""
    tenants = sorted(requests, key=lambda tenant: (-requests[tenant], tenant))
    total = sum(requests.values())
    return sentence(total) % {"tenants": listed(tenants), "count": grouped(total)}


def listed(names: list[str]) -> str:
    """The first few names, of one or more, and how many others there are."""
    named, more = names[:NAMED_MAX], len(names) - NAMED_MAX
    if more > 0:
        return _("%(names)s and %(count)s more") % {"names": ", ".join(named), "count": grouped(more)}
    if len(named) == 1:
        return named[0]
    return _("%(names)s and %(last)s") % {"names": ", ".join(named[:-1]), "last": named[-1]}
