from __future__ import annotations

from bench.paging import GATEWAYS, arrivals, at_all, spread


def test_a_cordon_is_everywhere_when_the_last_gateway_has_its_revision():
    applied = arrivals([[7, at] for at in range(GATEWAYS)])
    assert at_all(applied, 7) == GATEWAYS - 1


def test_a_revision_that_some_gateways_passed_over_is_everywhere_with_the_next_that_all_took():
    applied = arrivals([[7, 1], *([8, 10 + at] for at in range(GATEWAYS))])
    assert at_all(applied, 7) == 10 + GATEWAYS - 1


def test_one_that_a_gateway_never_took_is_nowhere():
    assert at_all(arrivals([[7, at] for at in range(GATEWAYS - 1)]), 7) is None


def test_without_a_webhook_the_figure_misses_every_target():
    assert spread("wait", [])["wait_p95_seconds"] == float("inf")
    assert spread("wait", [1000, 3000])["wait_p50_seconds"] == 2
