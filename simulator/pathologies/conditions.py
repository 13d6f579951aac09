"""`POST /simulator/conditions`: what is wrong with an engine from now on. None: it is well again.

Each condition is one cause as the first seed has it, not a symptom: slow answers, waiting and preemptions follow from
the engine's own scheduler.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class KvLeak(Struct, frozen=True, tag_field="kind", tag="kv_leak", forbid_unknown_fields=True):
    """Blocks of KV cache that no sequence holds and that are not given back. Source: seed 1, section 1.

    `share` of the capacity: usage counts it, and the capacity that is told stays as it was.
    """

    share: Annotated[float, Meta(ge=0, le=0.95)]


class KvOverstated(Struct, frozen=True, tag_field="kind", tag="kv_overstated", forbid_unknown_fields=True):
    """The engine tells of `factor` times the KV cache that it has, as hybrid models' block counts do.

    Whoever admits by that number admits too much, and running sequences preempt each other. Source: seed 1, section 2.
    """

    factor: Annotated[float, Meta(gt=1, le=100)]


class IgnoresCancel(Struct, frozen=True, tag_field="kind", tag="ignores_cancel", forbid_unknown_fields=True):
    """A client that leaves is not noticed: its answer is made to the end. Source: seed 1, section 11."""


class FrontEndBound(Struct, frozen=True, tag_field="kind", tag="front_end_bound", forbid_unknown_fields=True):
    """Each token costs the API process so much CPU time, in one queue for all answers. Source: seed 1, section 16.

    With `--api-server-count` n each of them has the n-th part of it.
    """

    token_seconds: Annotated[float, Meta(gt=0, le=10)]


class SlowGrammars(Struct, frozen=True, tag_field="kind", tag="slow_grammars", forbid_unknown_fields=True):
    """The first request with each schema waits so long, whatever was compiled before. Source: seed 1, section 17."""

    compile_seconds: Annotated[float, Meta(gt=0, le=600)]


class FewFiles(Struct, frozen=True, tag_field="kind", tag="few_files", forbid_unknown_fields=True):
    """The process may open only `spare` files more than it has open now. Source: seed 1, section 15."""

    spare: Annotated[int, Meta(ge=1, le=1000)]


Condition = KvLeak | KvOverstated | IgnoresCancel | FrontEndBound | SlowGrammars | FewFiles


class Conditions(Struct, frozen=True, forbid_unknown_fields=True):
    """All that shall hold, of each kind at most one; what is not among them ends."""

    conditions: Annotated[list[Condition], Meta(max_length=16)] = []
