"""Which act is next. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpu_agent.acts.admission import lane
from gpu_agent.acts.journal import Entry
from wire.snapshot import Act


def due(
    acts: Mapping[str, Act], entries: Mapping[str, Entry], begun_before: Collection[str], busy: Collection[str]
) -> dict[str, str]:
    """The id of the next act of each lane that is not `busy`: one that was begun first, the others by their order.

    `acts`: those of the slice that the journal does not know. `begun_before`: acts of `entries` that a former run of
    the agent left running.
    """
    waiting = {act_id: entries[act_id].act for act_id in begun_before} | dict(acts)
    found: dict[str, str] = {}
    for act_id in sorted(waiting, key=lambda each: (each not in begun_before, waiting[each].order, each)):
        name = lane(waiting[act_id])
        if name not in busy:
            found.setdefault(name, act_id)
    return found
