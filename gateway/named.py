"""The names that are configured now, by which it is told whose series are pushed."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.metrics import UNKNOWN
from gateway.view import View

Labels = Mapping[str, str]


class Named:
    """The registry goes on counting for a name of the configuration that was removed; to the store it has ended."""

    def __init__(self, view: View) -> None:
        configured = view.snapshot
        self._names = {
            "pool": configured.pools.keys() | {UNKNOWN},
            "tenant": configured.tenants.keys() | {UNKNOWN},
            "priority_class": configured.priority_classes.keys() | {UNKNOWN},
            "model": configured.models.keys() | {UNKNOWN},
            "engine": configured.engines.keys() | {UNKNOWN},
        }

    def takes(self, labels: Labels) -> bool:
        """Whether labels speak of what is configured; of what they do not name they may be anybody's."""
        return all(labels.get(label, UNKNOWN) in names for label, names in self._names.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self._names == other._names

    __hash__ = None  # type: ignore[assignment]
