"""A file of unit tests, the rule files that it names, and what it says of them, as texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from controlplane.alerts.rule_file.fields import WITH_RECORDING, GroupFields, checked
from controlplane.alerts.rule_file.text import read_yaml
from controlplane.alerts.rule_file.unit_fields import TestFileFields, checked_tests
from controlplane.alerts.rule_file.unit_run import Verdict, run
from controlplane.core.errors import Refused
from wire.canonical import Document

# Names of rule files → their texts by name.
Find = Callable[[Sequence[str]], dict[str, bytes]]


def run_file(text: bytes, find: Find, seconds: float) -> list[Verdict]:
    """The verdict of each test of a file on the rule files that `find` has for the names that it gives.

    Raises Refused (of the tests, or with the name of the rule file that it is about) and QueryError (TimedOut).
    """
    file: TestFileFields = checked_tests(read_yaml(text))
    groups: list[GroupFields] = []
    for name, content in find(file.rule_files).items():
        try:
            groups += checked(read_yaml(content), WITH_RECORDING)
        except Refused as refused:
            raise Refused(f"{name}: {refused.detail}", refused.problems) from refused
    return run(file, groups, seconds)


def lines_of(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """What failed, for people."""
    for verdict in verdicts:
        for failure in verdict.failures:
            yield f"    {verdict.name}: {_of(failure)}"
            if "error" in failure:
                yield f"        {failure['error']}"
            else:
                yield from _listed("expected", failure["expected"])
                yield from _listed("got", failure["got"])


def _of(failure: Document) -> str:
    about = next((f"{name} {failure[name]}" for name in ("alertname", "expr", "rule") if name in failure), "input")
    return f"{about}, at {failure['time']}" if "time" in failure else about


def _listed(title: str, found: Sequence[Document]) -> Iterator[str]:
    yield f"        {title}:{'' if found else ' nothing'}"
    for one in found:
        value = f" {one['value']}" if "value" in one else ""
        yield f"            {_braced(one['labels'])}{value}"
        if one.get("annotations"):
            yield f"              {_braced(one['annotations'])}"


def _braced(texts: Document) -> str:
    return "{" + ", ".join(f'{name}="{text}"' for name, text in sorted(texts.items())) + "}"
