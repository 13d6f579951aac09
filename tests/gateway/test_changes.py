"""Which samples are pushed of counters that move and of those that stand still, and what a store makes of them."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.changes import Changes
from gateway.metrics import Metrics
from gateway.named import Named
from gateway.view import View, compile_view
from tests.gateway.fleet import configuration
from wire.snapshot_checks import decode_snapshot
from wire.write_body import Series

INTERVAL_MS = 5_000
MINUTE_MS = 60_000
BEGUN_MS = 1_700_000_000_000
REQUESTS = "headworks_gateway_requests_total"
TENANTS = ("alpha", "beta")


def named(*removed: str) -> Named:
    content = configuration("http://127.0.0.1:1")
    content["tenants"] = {name: row for name, row in content["tenants"].items() if name not in removed}
    content["keys"] = {key: row for key, row in content["keys"].items() if row["tenant"] not in removed}
    return Named(compile_view(decode_snapshot(content), 1))


class Site:
    """A gateway's counters, and a store that takes what is pushed of them every 5 s."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.changes = Changes(self.metrics.families, "gw")
        self.now_ms = BEGUN_MS
        self.stored: dict[tuple[tuple[str, str], ...], list[tuple[int, float]]] = defaultdict(list)

    def ask(self, tenant: str) -> None:
        self.metrics.request("main", tenant, "interactive", "ok", "none")

    def push(self, configured: Named | None = None) -> list[Series]:
        self.now_ms += INTERVAL_MS
        return self.take(self.changes.due(self.changes.take_touched(), configured or named(), self.now_ms))

    def take(self, pushed: Iterable[Series]) -> list[Series]:
        taken = list(pushed)
        for series in taken:
            self.stored[tuple(sorted(series.labels.items()))] += series.samples
        return taken

    def requests_of(self, tenant: str) -> list[tuple[int, float]]:
        """The stored samples of the tenant's requests."""
        (found,) = [
            samples
            for identity, samples in self.stored.items()
            if {("__name__", REQUESTS), ("tenant", tenant)} <= set(identity)
        ]
        return found


def test_the_first_request_is_a_step_from_zero():
    site = Site()
    site.push()
    site.ask("alpha")
    site.push()
    assert site.requests_of("alpha") == [(site.now_ms - INTERVAL_MS, 0), (site.now_ms, 1)]


def test_what_came_before_its_tenant_was_configured_is_no_step():
    site = Site()
    site.push(named("alpha"))
    site.ask("alpha")
    site.push(named("alpha"))
    site.ask("alpha")
    site.push()
    assert site.requests_of("alpha") == [(site.now_ms, 2)]


@given(st.lists(st.sets(st.sampled_from(TENANTS)), min_size=20, max_size=120))
@settings(max_examples=40, deadline=None)
def test_a_store_knows_each_value_and_step_as_if_all_were_pushed_every_time(asking: list[set[str]]):
    site = Site()
    truth: dict[str, list[tuple[int, float]]] = {tenant: [] for tenant in TENANTS}
    for tenant in TENANTS:
        site.ask(tenant)
    for askers in [set[str](), *asking]:
        for tenant in askers:
            site.ask(tenant)
        site.push()
        for tenant, values in truth.items():
            values.append((site.now_ms, (values[-1][1] if values else 1) + (tenant in askers)))
    for tenant, values in truth.items():
        stored = site.requests_of(tenant)
        times = [at_ms for at_ms, _ in stored]
        assert times == sorted(set(times)), "a store takes samples in order, one at a time"
        for at_ms, value in values:
            assert stored[bisect.bisect_right(times, at_ms) - 1][1] == value
            if at_ms - BEGUN_MS > MINUTE_MS:
                within = bisect.bisect_right(times, at_ms) - bisect.bisect_right(times, at_ms - MINUTE_MS)
                assert within >= 2, "rate() over a minute needs two"
        steps = [later - earlier for (earlier, old), (later, new) in itertools.pairwise(stored) if new != old]
        assert set(steps) <= {INTERVAL_MS}, "a step is as wide as the time in which it happened"


def test_a_push_holds_what_moved_and_a_part_of_what_stands_still():
    site = Site()
    tenants = [f"t-{number}" for number in range(200)]
    configured = Named(_with_tenants(tenants))
    for tenant in tenants:
        site.ask(tenant)
    assert len(site.push(configured)) == 200
    sizes = []
    for _ in range(20):
        site.ask("t-0")
        pushed = site.push(configured)
        assert [series.labels["tenant"] for series in pushed].count("t-0") == 1
        sizes.append(len(pushed))
    # Each comes again every 25 s, and not all of them at once.
    assert 200 * 20 / 5 * 0.9 <= sum(sizes) <= 200 * 20 / 5 * 1.2 + 20
    assert max(sizes) < 100


def _with_tenants(tenants: list[str]) -> View:
    content = configuration("http://127.0.0.1:1")
    content["tenants"] = {name: {} for name in tenants}
    content["keys"] = {}
    return compile_view(decode_snapshot(content), 1)


def test_of_a_histogram_only_what_an_observation_moved_is_sent():
    site = Site()
    series = site.metrics.series("main", "alpha", "interactive")
    series.tpot.observe(0.004)
    site.push()
    site.metrics.series("main", "alpha", "interactive").tpot.observe(0.04)
    # Those that stand still may come again in the same push.
    moved = {
        series.labels.get("le", series.labels["__name__"].rpartition("_")[2])
        for series in site.push()
        if series.labels["__name__"].startswith("headworks_gateway_tpot") and not _is_repeated(site, series)
    }
    assert moved == {"0.05", "0.075", "0.1", "0.2", "0.5", "1.0", "+Inf", "count", "sum"}


def _is_repeated(site: Site, series: Series) -> bool:
    *before, newest = site.stored[tuple(sorted(series.labels.items()))]
    return bool(before) and before[-1][1] == newest[1]


def test_a_removed_tenant_ends_at_once_and_is_there_again_when_it_comes_back():
    site = Site()
    for tenant in TENANTS:
        site.ask(tenant)
    site.push()
    site.push(named("beta"))
    assert math.isnan(site.requests_of("beta")[-1][1])
    told = len(site.requests_of("beta"))
    site.ask("beta")
    site.push(named("beta"))
    assert len(site.requests_of("beta")) == told, "nothing is told of who is not configured"
    site.push()
    assert site.requests_of("beta")[-1] == (site.now_ms, 2)


def test_everything_that_was_sent_ends_with_the_gateway():
    site = Site()
    for tenant in TENANTS:
        site.ask(tenant)
    site.metrics.series("main", "alpha", "interactive").e2e.observe(1)
    site.push()
    site.take(site.changes.end(site.now_ms + 1))
    assert len(site.stored) > 20
    assert all(math.isnan(samples[-1][1]) for samples in site.stored.values())
    assert list(site.changes.end(site.now_ms + 2)) == []


def test_a_clock_that_is_set_back_keeps_no_series_silent():
    site = Site()
    site.ask("alpha")
    site.push()
    site.now_ms -= 3_600_000
    assert site.push()


def test_a_counter_that_moves_when_the_clock_is_set_back_tells_of_no_later_time():
    site = Site()
    site.ask("alpha")
    site.push()
    site.push()
    site.now_ms -= 3_600_000
    site.ask("alpha")
    moved = [samples for samples in (series.samples for series in site.push()) if samples[-1][1] == 2]
    assert moved == [((site.now_ms, 2),)]
