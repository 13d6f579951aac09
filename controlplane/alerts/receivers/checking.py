"""What people set of a receiver, against what its kind takes."""

from __future__ import annotations

from controlplane import settings_rows
from controlplane.alerts.addresses import url_refusal
from controlplane.alerts.receivers.contract import Channel, Target
from controlplane.core import fields as f
from controlplane.core.errors import Refused
from wire.canonical import Document
from wire.problems import Problem


def read_settings(channel: Channel, given: Document) -> Document:
    """The kind's settings, with defaults. Raises Refused with every problem, each at its path under `/settings`."""
    try:
        return f.read(channel.settings, given).model_dump()
    except Refused as refused:
        at = [Problem(f"/settings{each.path}".rstrip("/"), each.rule, each.message) for each in refused.problems]
        raise f.refused(at) from refused


def url_of(channel: Channel, given: str) -> str:
    """The URL that is given, or else the kind's own."""
    return given or (channel.url if channel.url.startswith("https://") else "")


def problems_of(channel: Channel, target: Target, *, secret: str | None, has_secret: bool) -> list[Problem]:
    """What does not fit the kind: URL, `secret` where one is given, and what goes together."""
    problems = []
    if wrong := _url_problem(channel, target.url):
        problems.append(Problem("/url", "url", wrong))
    if secret is not None and (wrong := channel.secret_problem(secret, settings_rows.WEBHOOK_ALLOWED_NETWORKS.read())):
        problems.append(Problem("/secret", "secret", wrong))
    needs = channel.secret
    if needs and needs.required and not needs.made and not has_secret:
        problems.append(Problem("/secret", "required", f"give the {needs.says}"))
    return problems + channel.setting_problems(target, has_secret=has_secret)


def _url_problem(channel: Channel, url: str) -> str | None:
    if wrong := channel.url_problem(url):
        return wrong
    return url_refusal(url, settings_rows.WEBHOOK_ALLOWED_NETWORKS.read()) if url else None
