"""Whether the fleet is all right, and if not, why: counts in, one state and its troubles out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlplane.web.shown import pool_words

# bad: somebody feels it, or soon will. wait: worth a look. none: there is nothing yet to be judged.
State = Literal["bad", "wait", "none", "good"]
# As many as a person reads in one line.
NAMED_MAX = 3
_BAD_POOLS: frozenset[pool_words.State] = frozenset({"down", "missed"})
# A pool without engines is being set up, unless requests for it are refused, which is a reason of its own.
_QUIET_POOLS: frozenset[pool_words.State] = frozenset({"ok", "empty"})


@dataclass(frozen=True)
class Seen:
    """What is judged. `pools`: state by name. `firing`: incidents by severity. `behind`: targets that are to follow.
    `out`: engines that people or the program keep out of service, which is told, and no trouble by itself.

    `metrics_missing`: the metrics store did not answer. `config_damaged`: the configuration cannot be read.
    """

    pools: Mapping[str, pool_words.State] = field(default_factory=dict)
    out: int = 0
    firing: Mapping[str, int] = field(default_factory=dict)
    targets: int = 0
    refusing: Sequence[str] = ()
    lost: Sequence[str] = ()
    behind: int = 0
    metrics_missing: bool = False
    config_damaged: bool = False


class Trouble(NamedTuple):
    """`about`: which part of the overview tells more of it."""

    state: State
    about: Literal["pools", "incidents", "targets", "metrics"]
    text: str


def troubles(seen: Seen) -> list[Trouble]:
    """All that is not right, the worst first."""
    found = [*_of_pools(seen.pools), *_of_incidents(seen.firing), *_of_targets(seen)]
    if seen.metrics_missing:
        found.append(Trouble("wait", "metrics", _("the metrics store does not answer")))
    return sorted(found, key=lambda trouble: trouble.state != "bad")


def state_of(seen: Seen, found: Iterable[Trouble]) -> State:
    states = {trouble.state for trouble in found}
    if "bad" in states:
        return "bad"
    if "wait" in states:
        return "wait"
    return "good" if seen.pools else "none"


def sentence(seen: Seen, found: Sequence[Trouble]) -> str:
    """What a person hears who asks whether all is right."""
    if found:
        return "; ".join(trouble.text for trouble in found)
    if not seen.pools:
        return _("there is no pool yet, so nothing is served")
    pools = ngettext("%(count)s pool", "%(count)s pools", len(seen.pools)) % {"count": len(seen.pools)}
    targets = ngettext(
        "%(count)s target runs the newest configuration",
        "%(count)s targets run the newest configuration",
        seen.targets,
    )
    parts = [_("%(pools)s without trouble") % {"pools": pools}, _("no incident fires")]
    parts.append(targets % {"count": seen.targets})
    if seen.out:
        out = ngettext("%(count)s engine kept out of service", "%(count)s engines kept out of service", seen.out)
        parts.append(out % {"count": seen.out})
    return ", ".join(parts)


def _of_pools(pools: Mapping[str, pool_words.State]) -> Iterator[Trouble]:
    texts = {
        "down": _("down: %(names)s"),
        "missed": _("promises missed: %(names)s"),
        "tight": _("tight: %(names)s"),
        "stale": _("stale readings: %(names)s"),
        "unmeasured": _("not measured: %(names)s"),
    }
    for state in pool_words.STATES:
        names = [name for name, each in pools.items() if each == state]
        if names and state not in _QUIET_POOLS:
            yield Trouble(
                "bad" if state in _BAD_POOLS else "wait", "pools", texts[state] % {"names": named(sorted(names))}
            )


def _of_incidents(firing: Mapping[str, int]) -> Iterator[Trouble]:
    critical, warning = firing.get("critical", 0), firing.get("warning", 0)
    if critical:
        text = ngettext("%(count)s critical incident", "%(count)s critical incidents", critical)
        yield Trouble("bad", "incidents", text % {"count": critical})
    if warning:
        text = ngettext("%(count)s warning", "%(count)s warnings", warning)
        yield Trouble("wait", "incidents", text % {"count": warning})


def _of_targets(seen: Seen) -> Iterator[Trouble]:
    if seen.config_damaged:
        yield Trouble("bad", "targets", _("the newest configuration cannot be read"))
    if seen.refusing:
        yield Trouble("bad", "targets", _("configuration refused by %(names)s") % {"names": named(seen.refusing)})
    if seen.lost:
        yield Trouble("bad", "targets", _("nothing heard of %(names)s") % {"names": named(seen.lost)})
    if seen.behind:
        text = ngettext(
            "%(count)s target has yet to apply the newest configuration",
            "%(count)s targets have yet to apply the newest configuration",
            seen.behind,
        )
        yield Trouble("wait", "targets", text % {"count": seen.behind})


def named(names: Sequence[str]) -> str:
    """The first few by name, and how many more there are."""
    shown, more = ", ".join(names[:NAMED_MAX]), len(names) - NAMED_MAX
    return _("%(names)s and %(count)s more") % {"names": shown, "count": more} if more > 0 else shown
