"""The guard against half a document: what it would remove is asked for twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from controlplane import settings_rows as rows
from controlplane.configs.edits import Edit
from controlplane.configs.models import Fragment
from wire.problems import Problem, pointer

RULE = "removals"


def keys_of_tenants() -> dict[str, int]:
    """Tenant → how many keys it has, of those that have some."""
    owners = Fragment.objects.filter(section="keys", content__isnull=False).values_list("content__tenant", flat=True)
    return Counter(owners)


def problems_of_removals(edit: Edit, keys: Mapping[str, int]) -> list[Problem]:
    """What of an edit needs `allow_removals`: keys or engines that would go, or a large share of a section."""
    percent = rows.CONFIG_REMOVALS_PERCENT.read()
    problems = []
    for section in edit.entries:
        removed, there = len(edit.removed(section)), len(edit.before[section])
        if section != "engines" and removed * 100 > there * percent:
            says = f"{removed} of {there} would go, more than {percent} % (HEADWORKS_CONFIG_REMOVALS_PERCENT)"
            problems.append(Problem(f"/{section}", RULE, says))
    problems += [
        Problem(pointer("/tenants", tenant), RULE, f"{keys_in_words(keys[tenant])} would go with it")
        for tenant in edit.removed("tenants")
        if tenant in keys
    ]
    problems += [
        Problem(pointer("/engines", engine), RULE, "this engine would go") for engine in edit.removed("engines")
    ]
    return problems


def keys_in_words(number: int) -> str:
    return "1 key" if number == 1 else f"{number} keys"
