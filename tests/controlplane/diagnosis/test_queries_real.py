"""What detectors ask has a real Prometheus' answers, and finds something where there is something."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator

import pytest

from controlplane.diagnosis.asking import expressions
from controlplane.diagnosis.detectors.registry import DETECTORS
from controlplane.diagnosis.facts import shares_query
from tests.controlplane.telemetry.twins import COUNT, JITTER_MS, STEP_MS, Twins, compare, running_twins
from wire.write_body import Series

pytestmark = pytest.mark.own_servers
QUERIES = list(
    dict.fromkeys(
        [*(promql for detector in DETECTORS for promql in expressions(detector, 120).values()), shares_query(120)]
    )
)
_SELECTOR = re.compile(r"\b([a-zA-Z_][\w:]*)(?:\{([^}]*)\}|(?=\[)|(?=\)))")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_LE = ("0.1", "1", "10", "+Inf")


def _asked() -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Each metric that is asked for, with values of the labels that the questions match."""
    found: dict[str, dict[str, list[str]]] = {}
    for query in QUERIES:
        for name, matchers in _SELECTOR.findall(query):
            values = found.setdefault(name, {})
            for label, operator, value in _MATCHER.findall(matchers):
                told = value.split("|") if operator in ("=", "=~") else ["other"]
                values.setdefault(label, []).extend(told)
    yield from found.items()


def fleet(begin_ms: int) -> list[Series]:
    """Of each metric two series of different places, and one for each value that is matched; they jump and grow."""
    dice = random.Random(5)
    times = [begin_ms + JITTER_MS + place * STEP_MS + dice.randrange(100) for place in range(COUNT)]
    series = []
    for name, matched in _asked():
        buckets = {"le": list(_LE)} if name.endswith("_bucket") else {}
        choices = {label: list(dict.fromkeys(values)) for label, values in {**matched, **buckets}.items()}
        for one in ("a", "b"):
            whose = {label: f"{label}-{one}" for label in ("pool", "tenant", "engine", "node", "gateway", "gpu")}
            for picked in itertools.product(*choices.values()):
                labels = {**whose, **dict(zip(choices, picked, strict=True))}
                series.append(Series({"__name__": name, **labels}, list(zip(times, _values(dice, name), strict=True))))
    return series


def _values(dice: random.Random, name: str) -> list[float]:
    if name.lower().endswith(("_total", "_bucket", "_count", "_sum")):
        return list(itertools.accumulate((float(dice.randrange(40)) for _ in range(COUNT)), initial=10.0**6))[1:]
    return [float(dice.randrange(1, 90)) for _ in range(COUNT)]


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with running_twins(tmp_path_factory.mktemp("twins"), fleet) as both:
        yield both


@pytest.mark.parametrize("query", QUERIES)
def test_a_question_has_the_answer_that_prometheus_gives(twins: Twins, query: str):
    compare(twins, query)
    asked = {"query": query, "start": twins.begin_ms / 1000, "end": twins.end_ms / 1000, "step": 15}
    assert twins.theirs("query_range", **asked)["data"]["result"], "nothing was compared"
