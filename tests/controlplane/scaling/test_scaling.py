"""Scale signals: measured once however many workers there are, told by REST and as metrics, and to KEDA over gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.error import URLError

import grpc
import pytest
from django.utils import timezone

from controlplane.core import gauges
from controlplane.core.models import Role
from controlplane.fleet.models import Engine
from controlplane.rest_client import Rest as Client
from controlplane.rest_client import RestError
from controlplane.scaling.externalscaler_pb2 import (
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    ScaledObjectRef,
)
from controlplane.scaling.keda import SERVICE, SIGNALS, Scaler, server_of
from controlplane.scaling.measuring import measure, measure_if_due
from controlplane.scaling.models import PoolScale
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.conftest import Rest
from tests.controlplane.core.people import person, token_of
from tests.controlplane.telemetry.filling import named, store


@pytest.fixture
def pool(admin: Rest, tmp_path: Any, settings: Any) -> Rest:
    """The pool `chat` of two engines of 100,000 tokens each, of which 900 per mille may be admitted."""
    settings.DATA_DIR = tmp_path
    made: list[tuple[str, dict[str, Any]]] = [
        ("/models", {"name": "org/m-1", "max_context_tokens": 8192}),
        ("/pools", {"name": "chat", "model": "org/m-1", "ttft_slo_ms": 2000}),
        ("/nodes", {"name": "n1"}),
    ]
    for number in (1, 2):
        at = {"url": f"http://10.0.0.{number}:8000", "node": "n1", "kv_capacity_tokens": 100_000}
        made.append(("/engines", {"name": f"e{number}", "pool": "chat", "served_model": "m", **at}))
    for path, body in made:
        answer = admin.post(path, body)
        assert answer.status_code == 201, answer.content
    Engine.objects.update(state="up", reported_at=timezone.now())
    return admin


def told(**values: float) -> None:
    """What a gateway pushed just now, by metric."""
    now_ms = int(time.time()) * 1000
    series = [named(f"headworks_gateway_{name}", [(now_ms, value)], pool="chat") for name, value in values.items()]
    store(store_path(), series, Owner("gateway", "gw-1"))


def signals(rest: Rest) -> Any:
    (item,) = rest.get("/scale-signals").json()["items"]
    return item


def test_a_pool_wants_engines_for_what_is_held_and_what_waits(pool: Rest) -> None:
    told(kv_reserved_tokens=170_000, queue_tokens=118_000, queue_length=12)
    measure(timezone.now())
    found = signals(pool)
    assert (found["admissible_tokens"], found["held_tokens"], found["waiting_tokens"]) == (180_000, 170_000, 118_000)
    assert (found["wanted_engines"], found["desired_engines"]) == (4, 4)
    assert found["ttft_seconds"] is None
    assert pool.get("/scale-signals/chat").json()["pool"] == "chat"
    assert pool.get("/scale-signals/none").status_code == 404


def test_it_goes_up_at_once_and_down_only_when_the_time_is_over(pool: Rest) -> None:
    told(kv_reserved_tokens=280_000)
    now = timezone.now()
    measure(now)
    PoolScale.objects.update(recent=[[int((now - timedelta(seconds=500)).timestamp() * 1000), 7]])
    measure(now)
    assert (signals(pool)["wanted_engines"], signals(pool)["desired_engines"]) == (4, 7)
    measure(now + timedelta(seconds=120))
    row = PoolScale.objects.get()
    assert (row.wanted, row.desired) == (4, 4)


@pytest.mark.parametrize(("held", "wanted"), [(1e300, 1_000_000_000), (1.7e308, 2), (float("inf"), 2)])
def test_a_number_that_no_pool_can_have_keeps_no_pool_from_being_measured(pool: Rest, held: float, wanted: int) -> None:
    told(kv_reserved_tokens=held)
    measure(timezone.now())
    assert signals(pool)["wanted_engines"] == wanted


def came(number: float) -> None:
    """Requests that came to the pool within the last minute, however they ended."""
    now_ms = int(time.time()) * 1000
    points = [(now_ms - 60_000, 5.0), (now_ms, 5.0 + number)]
    store(store_path(), [named("headworks_gateway_requests_total", points, pool="chat")], Owner("gateway", "gw-1"))


@pytest.mark.parametrize(("requests", "desired"), [(None, 4), (7, 4), (0, 1)])
def test_a_pool_whose_engines_are_all_down_keeps_its_number_unless_nobody_asks_for_it(
    pool: Rest, requests: int | None, desired: int
) -> None:
    told(kv_reserved_tokens=280_000)
    measure(timezone.now())
    assert signals(pool)["desired_engines"] == 4
    Engine.objects.update(state="down")
    # What was wanted is too long ago to count.
    PoolScale.objects.update(recent=[])
    if requests is not None:
        came(requests)
    measure(timezone.now())
    assert (signals(pool)["wanted_engines"], signals(pool)["desired_engines"]) == (desired, desired)


def test_a_pool_that_starts_slowly_and_has_nothing_spare_says_so(pool: Rest) -> None:
    Engine.objects.filter(name="e1").update(facts={"start_phases_ms": {"load": 60_000, "compile": 30_000}})
    measure(timezone.now())
    spare = {"needed": True, "have": 0, "cold_start_ms": 90_000, "queue_ttl_ms": 5_000}
    assert signals(pool)["warm_spare"] == spare
    Engine.objects.filter(name="e2").update(condition="sleeping")
    measure(timezone.now())
    assert signals(pool)["warm_spare"] == {**spare, "have": 1}


def test_it_is_measured_once_an_interval_however_many_ask(pool: Rest) -> None:
    now = timezone.now()
    assert [measure_if_due(now), measure_if_due(now), measure_if_due(now + timedelta(seconds=16))] == [
        True,
        False,
        True,
    ]
    assert measure_if_due(now - timedelta(days=1)), "a clock that was set back makes nobody blind"


def test_what_was_not_measured_lately_is_not_told(pool: Rest) -> None:
    measure(timezone.now() - timedelta(minutes=5))
    assert pool.get("/scale-signals").json()["items"] == []
    assert not samples()


def samples() -> dict[str, float]:
    found = gauges.families(timezone.now())
    scale = [each for family in found for each in family.samples if each.name.startswith("headworks_scale_")]
    return {each.name: each.value for each in scale if each.labels == {"pool": "chat"}}


def test_they_are_metrics_of_the_control_plane(pool: Rest) -> None:
    told(kv_reserved_tokens=280_000, queue_length=3)
    measure(timezone.now())
    found = samples()
    assert found["headworks_scale_engines_desired"] == 4
    assert found["headworks_scale_queue_length"] == 3
    assert "headworks_scale_ttft_p95_seconds" not in found, "what is not known is absent, not 0"


def test_a_pool_that_is_removed_is_forgotten(pool: Rest) -> None:
    measure(timezone.now())
    for path in ("/engines/e1", "/engines/e2", "/pools/chat"):
        assert pool.delete(path).status_code == 200
    measure(timezone.now())
    assert not PoolScale.objects.exists()


def test_every_role_of_the_whole_fleet_reads_them_and_nobody_else(pool: Rest) -> None:
    assert token_of(person(Role.VIEWER)).get("/scale-signals").status_code == 200
    assert token_of(person(Role.VIEWER, tenants=["acme"])).get("/scale-signals").status_code == 403
    assert Rest(None).get("/scale-signals").status_code == 401


# KEDA


class Answers(Client):
    """A control plane of one pool, which can be away."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9", "", "")
        self.signals: dict[str, Any] = dict.fromkeys(SIGNALS, 3.0)
        self.away = False

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        if self.away:
            raise URLError("refused")
        if path != "/scale-signals/chat":
            raise RestError(method, path, 404, {})
        return self.signals


@pytest.fixture
def answers() -> Answers:
    return Answers()


@asynccontextmanager
async def serving(answers: Answers) -> AsyncIterator[grpc.aio.Channel]:
    server = server_of(Scaler(answers, watch_seconds=0.02))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(0)


def ref(**metadata: str) -> ScaledObjectRef:
    return ScaledObjectRef(name="chat", namespace="llm", scalerMetadata=metadata)


async def ask(channel: grpc.aio.Channel, call: str, request: Any, answer: Any) -> Any:
    method = channel.unary_unary(f"/{SERVICE}/{call}", _bytes, answer)
    return await method(request)


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


async def refusal(channel: grpc.aio.Channel, call: str, request: Any, answer: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ask(channel, call, request, answer)
    return refused.value.code(), str(refused.value.details())


@pytest.mark.parametrize(
    ("signal", "target", "value", "of_target", "of_value"),
    [
        ("desired_engines", "1", 3, 1, 3),
        ("queue_seconds", "2", 2.1, 2, 3),
        ("kv_use_ratio", "0.8", 0.9, 0, 1),
        ("held_tokens", "1e15", 1e15, 10**15, 10**15),
    ],
)
async def test_a_keda_that_reads_whole_numbers_alone_is_told_no_fewer(
    answers: Answers, signal: str, target: str, value: float, of_target: int, of_value: int
) -> None:
    answers.signals[signal] = value
    metadata = ref(pool="chat", signal=signal, target=target)
    async with serving(answers) as channel:
        spec = await ask(channel, "GetMetricSpec", metadata, GetMetricSpecResponse.FromString)
        asked = GetMetricsRequest(scaledObjectRef=metadata, metricName=signal)
        found = await ask(channel, "GetMetrics", asked, GetMetricsResponse.FromString)
    assert [(each.targetSize, each.targetSizeFloat) for each in spec.metricSpecs] == [(of_target, float(target))]
    assert [(each.metricValue, each.metricValueFloat) for each in found.metricValues] == [(of_value, value)]


@pytest.mark.parametrize("value", [1e16, 2.0**63, 1e300, float("inf")])
async def test_what_is_more_than_keda_can_count_is_told_as_the_most(answers: Answers, value: float) -> None:
    answers.signals["held_tokens"] = value
    metadata = ref(pool="chat", signal="held_tokens", target="1000")
    async with serving(answers) as channel:
        asked = GetMetricsRequest(scaledObjectRef=metadata, metricName="held_tokens")
        found = await ask(channel, "GetMetrics", asked, GetMetricsResponse.FromString)
    assert [(each.metricValue, each.metricValueFloat) for each in found.metricValues] == [(10**15, 1e15)]


@pytest.mark.parametrize("target", ["1e19", "9223372036854775808", "1e300", "inf", "nan", "0", "-1", "0.0001", "many"])
async def test_a_target_that_keda_cannot_count_by_is_refused_by_name(answers: Answers, target: str) -> None:
    async with serving(answers) as channel:
        metadata = ref(pool="chat", signal="held_tokens", target=target)
        code, says = await refusal(channel, "GetMetricSpec", metadata, GetMetricSpecResponse.FromString)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "metadata target is needed for held_tokens, a number from 0.001 to 1e+15" in says


async def test_keda_is_told_the_engines_that_the_pool_should_have(answers: Answers) -> None:
    async with serving(answers) as channel:
        spec = await ask(channel, "GetMetricSpec", ref(pool="chat"), GetMetricSpecResponse.FromString)
        assert [(each.metricName, each.targetSizeFloat) for each in spec.metricSpecs] == [("desired_engines", 1)]
        asked = GetMetricsRequest(scaledObjectRef=ref(pool="chat"), metricName="desired_engines")
        found = await ask(channel, "GetMetrics", asked, GetMetricsResponse.FromString)
        assert [(each.metricName, each.metricValueFloat) for each in found.metricValues] == [("desired_engines", 3)]
        other = ref(pool="chat", signal="queue_length", target="10")
        spec = await ask(channel, "GetMetricSpec", other, GetMetricSpecResponse.FromString)
        assert [(each.metricName, each.targetSizeFloat) for each in spec.metricSpecs] == [("queue_length", 10)]


@pytest.mark.parametrize(
    ("metadata", "code", "says"),
    [
        ({}, grpc.StatusCode.INVALID_ARGUMENT, "metadata pool is needed"),
        ({"pool": "none"}, grpc.StatusCode.NOT_FOUND, "answered 404 for pool 'none'"),
        ({"pool": "chat", "signal": "gpu"}, grpc.StatusCode.INVALID_ARGUMENT, "signal 'gpu' is not known"),
        ({"pool": "chat", "signal": "queue_length"}, grpc.StatusCode.INVALID_ARGUMENT, "metadata target is needed"),
    ],
)
async def test_what_is_wrong_in_a_scaled_object_is_said(
    answers: Answers, metadata: dict[str, str], code: Any, says: str
) -> None:
    async with serving(answers) as channel:
        asked = GetMetricsRequest(scaledObjectRef=ref(**metadata), metricName="x")
        found, details = await refusal(channel, "GetMetrics", asked, GetMetricsResponse.FromString)
        assert found == code
        assert says in details


async def test_what_is_not_known_is_no_number(answers: Answers) -> None:
    answers.signals["ttft_seconds"] = None
    async with serving(answers) as channel:
        metadata = ref(pool="chat", signal="ttft_seconds", target="2")
        asked = GetMetricsRequest(scaledObjectRef=metadata, metricName="ttft_seconds")
        code, _ = await refusal(channel, "GetMetrics", asked, GetMetricsResponse.FromString)
        assert code == grpc.StatusCode.UNAVAILABLE
        answers.away = True
        code, details = await refusal(channel, "IsActive", ref(pool="chat"), IsActiveResponse.FromString)
        assert (code, "cannot be reached" in details) == (grpc.StatusCode.UNAVAILABLE, True)


async def test_a_pool_is_active_while_anything_waits_or_runs_and_streams_say_when_that_changes(
    answers: Answers,
) -> None:
    async with serving(answers) as channel, asyncio.timeout(20):
        stream = channel.unary_stream(f"/{SERVICE}/StreamIsActive", _bytes, IsActiveResponse.FromString)(
            ref(pool="chat")
        )
        assert (await stream.read()).result
        answers.signals |= {"queue_length": 0.0, "held_tokens": 0.0}
        assert not (await stream.read()).result
        answers.signals["queue_length"] = None
        assert (await stream.read()).result, "where it is not known there may be work"
        stream.cancel()
