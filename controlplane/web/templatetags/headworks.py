"""How pages show times, numbers and states."""

from __future__ import annotations

from datetime import UTC, datetime

from django import template
from django.forms import BoundField, CheckboxInput, CheckboxSelectMultiple
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

register = template.Library()

# What audit entries are about: named in English in the audit, in the reader's language on pages.
NOUNS = (
    gettext_noop("api token"),
    gettext_noop("artifact"),
    gettext_noop("engine"),
    gettext_noop("join token"),
    gettext_noop("key"),
    gettext_noop("model"),
    gettext_noop("node"),
    gettext_noop("override"),
    gettext_noop("pool"),
    gettext_noop("priority class"),
    gettext_noop("rollback"),
    gettext_noop("route"),
    gettext_noop("target"),
    gettext_noop("tenant"),
    gettext_noop("user"),
)


@register.filter
def noun(name: str) -> str:
    """A noun of the audit in the reader's language; one that is not in NOUNS as it is."""
    return _(name) if name in NOUNS else name


@register.filter
def grouped(value: int | None) -> str:
    """60000 as 60,000 (or 60.000, by language); nothing for None."""
    return "" if value is None else number_format(value, use_l10n=True, force_grouping=True)


@register.filter
def readable(text: str) -> str:
    """A value of a diff: long whole numbers grouped, since 240000 and 2400000 look alike at night."""
    return grouped(int(text)) if text.isascii() and text.isdigit() and len(text) < 20 else text


@register.filter
def is_checkbox(field: BoundField) -> bool:
    return isinstance(field.field.widget, CheckboxInput)


@register.filter
def is_group(field: BoundField) -> bool:
    """Several inputs under one name."""
    return isinstance(field.field.widget, CheckboxSelectMultiple)


@register.filter
def ago(moment: datetime | None) -> SafeString | str:
    """How long since, with the exact time (UTC) on hover."""
    if moment is None:
        return _("never")
    exact = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        exact.isoformat(),
        exact.strftime("%Y-%m-%d %H:%M:%S UTC"),
        _since((timezone.now() - moment).total_seconds()),
    )


def _since(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole < 2:
        return _("just now")
    if whole < 120:
        return ngettext("%(count)d s ago", "%(count)d s ago", whole) % {"count": whole}
    if whole < 7200:
        return ngettext("%(count)d min ago", "%(count)d min ago", whole // 60) % {"count": whole // 60}
    if whole < 172_800:
        return ngettext("%(count)d h ago", "%(count)d h ago", whole // 3600) % {"count": whole // 3600}
    return ngettext("%(count)d day ago", "%(count)d days ago", whole // 86_400) % {"count": whole // 86_400}
