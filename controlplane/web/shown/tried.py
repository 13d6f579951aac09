"""What a page says of limits before they are applied: what they would have done to what came last."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlplane.core.errors import Refused
from controlplane.telemetry.decisions import shadow
from controlplane.web.templatetags.headworks import grouped

# Of a busy tenant more came in an hour than a page can wait for.
_MINUTES = (60, 10)


def effect_in_words(tenant: str, values: Mapping[str, Any]) -> str:
    """How many of the tenant's last requests would have been refused; empty where none of its limits is proposed."""
    proposed = {field: values[field] for field in shadow.ProposedFields.model_fields if field in values}
    for minutes in _MINUTES if proposed else ():
        try:
            asked = {"tenants": {tenant: proposed}, "minutes": minutes}
            (found,) = shadow.try_limits(asked, time.time_ns() // 1_000_000)["tenants"]
        except Refused:
            continue
        if found["arrivals"]:
            return _in_words(found, minutes)
    return ""


def _in_words(found: Mapping[str, Any], minutes: int) -> str:
    came = ngettext(
        "Tried on the %(minutes)d minutes before, in which %(count)s request came:",
        "Tried on the %(minutes)d minutes before, in which %(count)s requests came:",
        found["arrivals"],
    ) % {"minutes": minutes, "count": grouped(found["arrivals"])}
    refused = _("%(proposed)s would have been refused, and %(configured)s by what holds now.") % {
        "proposed": _refused(found["proposed"]),
        "configured": _refused(found["configured"]),
    }
    return f"{came} {refused}"


def _refused(tried: Mapping[str, Any]) -> str:
    reasons = ", ".join(f"{reason} {grouped(count)}" for reason, count in tried["reasons"].items())
    return grouped(tried["refused"]) + (f" ({reasons})" if reasons else "")
