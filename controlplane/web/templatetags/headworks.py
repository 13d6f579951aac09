"""How pages show times, numbers and states."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from django import template
from django.forms import BoundField, CheckboxInput, CheckboxSelectMultiple
from django.template import Context
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlplane.alerts import runbooks
from controlplane.alerts.models import Incident
from controlplane.core.models import AuditEntry
from controlplane.web.convergence import Count
from controlplane.web.differences import shown_key
from controlplane.web.labels import (
    action_label,
    actor_label,
    annotation_label,
    annotation_text,
    cause_label,
    entry_label,
    gpu_source_label,
    health_reason_label,
    needs_person,
    noun_label,
)
from controlplane.web.rendering import frame_of
from controlplane.web.shown.diagnosis import title_of
from controlplane.web.shown.fleet import GpuLine, Reason, headline_of
from controlplane.web.shown.places import place, place_address
from controlplane.web.shown.quantities import difference, lasted, measured, percent, promised
from controlplane.web.shown.reasons import MEANS
from controlplane.web.shown.spoken import spoken
from controlplane.web.states import SHORT_LABELS, Look, look_of

register = template.Library()
for _filter in (lasted, measured, percent, place, place_address, promised, spoken):
    register.filter(_filter)
_STEPS = re.compile(r"(?<=[^:/]/)(?=.)")
# As REST has moments.
_MOMENT = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)T(?P<time>\d\d:\d\d:\d\d)(\.\d+)?Z", re.ASCII)
_PART_OF_GPU = re.compile(r"(\bGPU \d+) \([^()]*[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9]\)")
# Annotations that are sentences; others are as their rule gives them.
_SAID = ("summary", "description")


@register.simple_tag(takes_context=True)
def frame(context: Context) -> str:
    """Put what the frame shows into the page, also into one that Django itself renders, as for an unknown address."""
    for name, value in frame_of(context["request"], str(context.get("section") or "")).items():
        context[name] = value
    return ""


@register.filter
def action(name: str) -> str:
    """What an agent is asked to do, in the reader's language."""
    return action_label(name)


@register.filter
def cause(name: str) -> str:
    """What a repair is about."""
    return cause_label(name)


@register.filter
def bottleneck(detector: str) -> str:
    """What a detector finds, in the reader's language."""
    return title_of(detector)


@register.filter
def means(reason: str) -> str:
    """What a gateway's reason for a refusal means; empty of one that a later version has."""
    return str(MEANS.get(reason, ""))


@register.filter
def noun(name: str) -> str:
    """A noun of the audit in the reader's language."""
    return noun_label(name)


@register.filter
def actor(entry: AuditEntry) -> str:
    """Who made a change."""
    return actor_label(entry.actor_kind, entry.actor)


@register.filter
def subject(entry: AuditEntry) -> str:
    """What an audit entry is about, as people know it."""
    return f"{noun_label(entry.noun)} {shown_key(entry.noun, entry.key, entry.after, entry.before)}"


@register.filter
def look(state: str) -> Look:
    """How a state is shown: its tone, shape and word."""
    return look_of(state)


@register.filter
def short_label(state: str) -> str:
    """A state in a few letters."""
    return str(SHORT_LABELS.get(state) or look_of(state).label)


@register.filter
def health_reason(reason: Reason) -> str:
    return health_reason_label(reason.name, reason.what)


@register.filter
def headline(incident: Incident) -> str:
    """An incident's title on its node's own row or page."""
    return spoken(headline_of(incident))


@register.filter
def without_part(text: str) -> str:
    """What an agent says of a GPU, without the model and the PCI address in brackets after its index."""
    return _PART_OF_GPU.sub(r"\1", text)


@register.filter
def annotation(name: str) -> str:
    """What an incident's annotation is called."""
    return annotation_label(name)


@register.filter
def annotated(text: str, name: str) -> str:
    """What the annotation `name` of an incident says."""
    return spoken(text) if name in _SAID else annotation_text(name, text)


@register.filter
def runbook_address(url: str) -> str:
    """Where the annotation `runbook_url` leads from a page; empty: nowhere."""
    slug = runbooks.slug_in(url)
    return reverse("web:runbook", args=[slug]) if slug else runbooks.address(url, "")


@register.filter
def reason_tone(reason: Reason) -> str:
    return "critical" if needs_person(reason.name) else "info"


@register.filter
def gpu_source(name: str) -> str:
    """Through what an agent reads its GPUs."""
    return gpu_source_label(name)


@register.filter
def gpu_title(gpu: GpuLine) -> str:
    """All that is known of a GPU, for those who point at its cell."""
    known = [f"GPU {gpu.index}", str(look_of(gpu.state).label), gpu.model, gpu.uuid]
    if gpu.memory_bytes is not None:
        known.append(
            _("memory %(used)s of %(all)s")
            % {"used": gibibytes(gpu.memory_used_bytes), "all": gibibytes(gpu.memory_bytes)}
        )
    return " · ".join(filter(None, known))


@register.filter
def gibibytes(size_bytes: int | None) -> str:
    """80 GiB; "–" where it is not known."""
    return "–" if size_bytes is None else f"{number_format(size_bytes / (1 << 30), 0, use_l10n=True)} GiB"


@register.filter
def entry_kind(kind: str) -> str:
    """What a line of an incident's time line is about."""
    return entry_label(kind)


@register.filter
def grouped(value: int | None) -> str:
    """60000 as 60,000 (or 60.000, by language); nothing for None."""
    return "" if value is None else number_format(value, use_l10n=True, force_grouping=True)


@register.filter
def readable(text: str | bool) -> str:
    """A value of a diff: whole numbers grouped, since 240000 and 2400000 look alike at night; moments; yes or no."""
    if isinstance(text, bool):
        return _("yes") if text else _("no")
    if moment := _MOMENT.fullmatch(text):
        return f"{moment['day']} {moment['time']} UTC"
    return grouped(int(text)) if text.isascii() and text.isdigit() and len(text) < 20 else text


@register.filter
def is_checkbox(field: BoundField) -> bool:
    return isinstance(field.field.widget, CheckboxInput)


@register.filter
def is_group(field: BoundField) -> bool:
    """Several inputs under one name."""
    return isinstance(field.field.widget, CheckboxSelectMultiple)


@register.filter
def breakable(url: str) -> SafeString:
    """An address that may go on in another line after each step of its path, rather than within a word."""
    return format_html_join(mark_safe("<wbr>"), "{}", ((step,) for step in _STEPS.split(url)))


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


@register.filter
def permille(share: int) -> str:
    """A share in thousandths as 25 %."""
    return percent(share / 1000)


@register.filter
def percent_sign(number: float | str) -> str:
    """A number with its sign: 31 %."""
    return _("%(number)s %%") % {"number": number}


@register.filter
def signed_percent(share: float) -> str:
    """A difference as a share: +12 %, -3 %."""
    return difference(share)


@register.filter
def milliseconds(value: int) -> str:
    """A measured time: 480 ms; from ten seconds on as other times."""
    return f"{grouped(value)} ms" if value < 10_000 else lasted(value / 1000)


@register.simple_tag
def tally_bar(tally: Sequence[Count]) -> SafeString:
    """How many targets are in each state, as parts of one bar; the counts stand beside it in words."""
    total, left, parts = sum(each.how_many for each in tally), 0, []
    # What is well comes first in the bar, as in one that fills.
    for each in reversed(tally):
        parts.append((each.state, left, each.how_many))
        left += each.how_many
    rects = format_html_join("", '<rect class="tally-{}" x="{}" width="{}" height="1"/>', parts)
    return format_html(
        '<svg class="tally-bar" viewBox="0 0 {} 1" preserveAspectRatio="none" aria-hidden="true">{}</svg>', total, rects
    )


@register.filter
def as_json(document: object) -> str:
    """For people to read and change."""
    return json.dumps(document, ensure_ascii=False, indent=2)


@register.filter
def countdown(moment: datetime) -> SafeString:
    """How long until then as 1:05:09, which a page's script keeps up, with the exact time (UTC) on hover."""
    now, exact = timezone.now(), moment.astimezone(UTC)
    left = max(0, round((exact - now).total_seconds()))
    text = f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}"
    shown = exact.strftime("%Y-%m-%d %H:%M:%S UTC")
    return format_html(
        '<time datetime="{}" data-now="{}" title="{}">{}</time>', exact.isoformat(), now.isoformat(), shown, text
    )


@register.filter
def seconds_after(moment: datetime, start: datetime) -> float:
    """From `start` to `moment`."""
    return (moment - start).total_seconds()


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
