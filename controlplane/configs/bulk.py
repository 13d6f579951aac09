"""Applying a document: one unit of work, one revision; rows that stand so already are not written."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter

from controlplane.configs.document import gathered
from controlplane.configs.edit_text import diff_text
from controlplane.configs.edits import Edit, Entries, edit_to
from controlplane.configs.ordering import in_order
from controlplane.configs.removals import keys_of_tenants, problems_of_removals
from controlplane.core.changes import UnitOfWork, Written
from controlplane.core.errors import Conflict
from controlplane.core.fields import refuse_if, shown
from controlplane.core.preconditions import entity_tag
from wire.canonical import Document
from wire.problems import Problem, pointer


def apply_document(
    unit: UnitOfWork,
    before: Document,
    checked: Document,
    *,
    allow_removals: bool,
    diff_max_characters: int | None = None,
) -> Document:
    """Make the configuration what a document says; `before` is the document as it stands.

    `checked`: that document, by `edits.checked_document`: before the unit of work, which keeps other writes out.
    Answers the diff, the counts, and the ETag of the document afterwards. After the form of all entries, what they
    refer to within their app is checked while they are written, then the whole: what is found at one stage is
    refused together. Raises Refused, or Conflict `removals`; a dry run warns of removals instead, to show the diff.
    """
    edit = edit_to(before, checked)
    keys = guard_removals(unit, edit, allow_removals)
    diff = diff_text(edit, keys, diff_max_characters)
    write_entries(unit, edit.entries)
    gone = sum(keys.get(tenant, 0) for tenant in edit.removed("tenants"))
    return {**edit.count(), "keys_removed": gone, "etag": entity_tag(edit.after), "diff": diff}


def guard_removals(unit: UnitOfWork, edit: Edit, allowed: bool) -> Mapping[str, int]:
    """Ask for removals that half a document may have made; answers how many keys go with removed tenants.

    Raises Conflict `removals` where they are not allowed; in a dry run they are warnings.
    """
    keys = keys_of_tenants() if edit.removed("tenants") else {}
    risks = [] if allowed else problems_of_removals(edit, keys)
    if risks and not unit.dry_run:
        raise Conflict(f"{shown(risks)}. Where that is meant, allow removals", risks, code="removals")
    unit.warnings += risks
    return keys


def write_entries(unit: UnitOfWork, entries: Entries) -> None:
    """Write entries, each as people write it (None: remove). Raises Refused with what is found of all of them."""
    problems: list[Problem] = []
    for section, some in groupby(in_order(entries), itemgetter(0)):
        if section.written is not None:
            _write_section(unit, section.name, section.written, {key: fields for _, key, fields in some}, problems)
    refuse_if(problems)


def _write_section(
    unit: UnitOfWork,
    section: str,
    written: Written,
    entries: Mapping[str, Document | None],
    problems: list[Problem],
) -> None:
    written.write_many(unit, entries, lambda key: gathered(problems, pointer(f"/{section}", key)))
