"""The pages of what-if runs: asked for in a form, the heat table, the peak's settings given to the pool."""

from __future__ import annotations

import re
import time

import pytest
from django.test import Client

from controlplane.fleet.services import MODELS, POOLS
from controlplane.planner.models import WhatIfRun, WhatIfState
from controlplane.telemetry.decisions import sketches
from tests.web.conftest import write
from tests.web.trying import done_run, report, waiting_run
from wire.sketches import MINUTE_MS, Sketch, bucket_of


@pytest.fixture
def pool(db: None) -> str:
    write(lambda unit: MODELS.create(unit, "m", {"max_context_tokens": 8192}))
    write(lambda unit: POOLS.create(unit, "chat", {"model": "m", "engine_arguments": {"dtype": "auto"}}))
    return "chat"


def test_the_heat_table_marks_the_peak_and_says_why(viewer: Client, pool: str) -> None:
    page = viewer.get(f"/what-if/{done_run(pool).pk}/").content.decode()
    cells = re.findall(r'<td class="number shade-(\d+)" title="[^"]*">([\d.]+)( <strong>▲)?', page)
    assert cells == [("5", "2.00", ""), ("10", "4.00", " <strong>▲"), ("8", "3.00", "")]
    assert "max_num_seqs 64 → 16: goodput -50.0 %: more first tokens come too late (20.0 % → 60.0 %" in page
    assert "max_num_seqs 64 → 4,096: the engine does not start" in page
    assert "max_num_batched_tokens 2,048 → 8,192: goodput -25.0 %: more answers come too slowly" in page
    assert "-10 %" in page
    assert "Use these settings" not in page


def test_turkish_writes_its_numbers_its_own_way(viewer: Client, pool: str) -> None:
    viewer.cookies["django_language"] = "tr"
    page = viewer.get(f"/what-if/{done_run(pool).pk}/").content.decode()
    for said in (">2,00<", "64 → 4.096", "-%50,0", "%20,0 → %60,0", "-%10"):
        assert said in page, said
    assert "4,096" not in page


def test_a_run_is_followed_while_it_is_open(viewer: Client, pool: str) -> None:
    run = waiting_run()
    assert "It waits for a worker" in viewer.get(f"/what-if/{run.pk}/").content.decode()
    WhatIfRun.objects.filter(pk=run.pk).update(state=WhatIfState.RUNNING, runs=8, runs_done=2)
    for path in ("/what-if/", f"/what-if/{run.pk}/"):
        assert 'value="25"' in viewer.get(path).content.decode()
    assert "every 2s" not in viewer.get(f"/what-if/{done_run(pool).pk}/").content.decode()


def test_what_cancelling_does_is_said_before(operator: Client, pool: str) -> None:
    page = operator.get(f"/what-if/{waiting_run().pk}/cancel/").content.decode()
    assert "what its runs have found is not kept" in page


def test_a_run_without_a_peak_says_so(viewer: Client, pool: str) -> None:
    run = done_run(pool)
    WhatIfRun.objects.filter(pk=run.pk).update(report={**report(), "peak": None, "calibration": None})
    assert "No request keeps its SLO" in viewer.get(f"/what-if/{run.pk}/").content.decode()


def test_it_is_asked_for_in_a_form_which_shows_what_is_refused(operator: Client, pool: str) -> None:
    filled = {"pool": pool, "days": "7", "max_num_seqs": "16, 64", "calibrate": "on", "step": "review"}
    answer = operator.post("/what-if-new/", filled)
    assert answer.status_code == 422
    assert "no request of pool" in answer.content.decode()
    minute = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS - MINUTE_MS
    lengths = [(bucket_of(50), 4)]
    sketches.take("edge", [Sketch(minute, pool=pool, arrivals=4, prompt_tokens=lengths, output_tokens=lengths)], minute)
    page = operator.post("/what-if-new/", filled).content.decode()
    digest = re.search(r'name="digest" value="([^"]+)"', page)
    assert digest is not None
    applied = {**filled, "step": "apply", "digest": digest[1], "reason": "more users"}
    assert operator.post("/what-if-new/", applied)["Location"] == "/what-if/"
    assert WhatIfRun.objects.get().ask["max_num_seqs"] == [16, 64]


def test_numbers_that_are_none_are_refused_at_their_field(operator: Client, pool: str) -> None:
    answer = operator.post("/what-if-new/", {"pool": pool, "days": "7", "max_num_seqs": "many", "step": "review"})
    assert "Give numbers, separated by commas." in answer.content.decode()


def test_the_settings_of_the_peak_go_to_the_pools_engine_arguments(operator: Client, pool: str) -> None:
    path = f"/what-if/{done_run(pool).pk}/use/"
    digest = re.search(r'name="digest" value="([^"]+)"', operator.get(path).content.decode())
    assert digest is not None
    answer = operator.post(path, {"step": "apply", "digest": digest[1], "reason": "the peak"})
    assert answer.status_code == 302
    assert POOLS.get(pool).engine_arguments == {"dtype": "auto", "max-num-seqs": 64, "max-num-batched-tokens": 2048}


def test_what_has_no_peak_cannot_be_used(operator: Client, pool: str) -> None:
    assert operator.get(f"/what-if/{waiting_run().pk}/use/").status_code == 409
