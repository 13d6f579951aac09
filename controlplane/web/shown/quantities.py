"""How measured values are said on pages. Pure, in the reader's language."""

from __future__ import annotations

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext


def lasted(seconds: float) -> str:
    """How long something took or lasts: 0.02 s, 0.8 s, 42 s, 12 min, 3 h, 2 days."""
    if seconds < 10:
        decimals = 2 if 0 < seconds < 0.1 else 1
        return _("%(count)s s") % {"count": number_format(max(0.0, seconds), decimals, use_l10n=True)}
    whole = int(seconds)
    if whole < 120:
        return _("%(count)d s") % {"count": whole}
    if whole < 7200:
        return _("%(count)d min") % {"count": whole // 60}
    if whole < 172_800:
        return _("%(count)d h") % {"count": whole // 3600}
    return ngettext("%(count)d day", "%(count)d days", whole // 86_400) % {"count": whole // 86_400}


def promised(seconds: float) -> str:
    """A limit as people set it: 50 ms, 2 s, 2.5 s."""
    if seconds < 1:
        return _("%(count)s ms") % {"count": number_format(round(seconds * 1000), use_l10n=True)}
    decimals = 0 if seconds == round(seconds) else 1
    return _("%(count)s s") % {"count": number_format(seconds, decimals, use_l10n=True)}


def percent(ratio: float | None) -> str:
    """31 %; 99.2 % where a tenth counts; "–" for None. A part is never said to be none or all."""
    if ratio is None:
        return "–"
    whole = ratio in (0.0, 1.0)
    shown = 100 * ratio if whole else min(max(100 * ratio, 0.1), 99.9)
    decimals = 0 if 1 <= shown < 90 or round(shown, 1) == round(shown) else 1
    return _("%(number)s %%") % {"number": number_format(shown, decimals, use_l10n=True)}


def of_hundred(number: float, decimals: int = 0) -> str:
    """31 %; 20.0 %. Its sign stands before all of it."""
    sign = "-" if number < 0 else ""
    return sign + _("%(number)s %%") % {"number": number_format(abs(number), decimals, use_l10n=True)}


def difference(ratio: float, decimals: int = 0) -> str:
    """A difference as a share: +12 %, -3 %."""
    return f"{'' if ratio < 0 else '+'}{of_hundred(100 * ratio, decimals)}"


def whole(number: float) -> str:
    """4,096."""
    return number_format(number, 0, use_l10n=True, force_grouping=True)


def measured(value: float | None) -> str:
    """1,240; 36.5; 4.20; "–" for None."""
    if value is None:
        return "–"
    decimals = 0 if value == 0 or value >= 100 else 1 if value >= 10 else 2
    return number_format(value, decimals, use_l10n=True, force_grouping=True)
