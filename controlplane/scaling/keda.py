"""KEDA's external scaler: what the control plane says that pools should have, over gRPC.

It keeps nothing and decides nothing: each call is one REST call. Where the control plane is away it says UNAVAILABLE,
and KEDA keeps the replicas that it has, or goes by the `fallback` of the ScaledObject.
Source: https://keda.sh/docs/latest/concepts/external-scalers/
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, NoReturn
from urllib.error import URLError
from urllib.parse import quote

import grpc
from grpc.aio import ServicerContext

from controlplane.rest_client import Rest, RestError
from controlplane.scaling.externalscaler_pb2 import (
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    MetricSpec,
    MetricValue,
    ScaledObjectRef,
)
from wire.canonical import Document

log = logging.getLogger(__name__)
SERVICE = "externalscaler.ExternalScaler"
DESIRED = "desired_engines"
SIGNALS = (
    DESIRED, "wanted_engines", "queue_length", "waiting_tokens", "held_tokens", "queue_seconds", "ttft_seconds",
    "kv_use_ratio",
)  # fmt: skip
_CALL_SECONDS, _GRACE_SECONDS = 5.0, 5.0
# KEDA counts in thousandths, as whole numbers of 64 bits (its pkg/scalers/scaler.go).
_LEAST, _MOST = 0.001, 1e15


class Scaler:
    """The four calls. `watch_seconds`: how often a stream of IsActive looks."""

    def __init__(self, rest: Rest, watch_seconds: float = 5.0) -> None:
        self._rest, self._watch_seconds = rest, watch_seconds

    async def is_active(self, asked: ScaledObjectRef, context: ServicerContext[Any, Any]) -> IsActiveResponse:
        """Whether anything waits or runs; where that is not known, it may."""
        return IsActiveResponse(result=_is_active(await self._signals(asked, context)))

    async def stream_is_active(
        self, asked: ScaledObjectRef, context: ServicerContext[Any, Any]
    ) -> AsyncIterator[IsActiveResponse]:
        """At once, and then whenever it changes. While the control plane is away it has not."""
        last = _is_active(await self._signals(asked, context))
        yield IsActiveResponse(result=last)
        while True:
            await asyncio.sleep(self._watch_seconds)
            try:
                now = _is_active(await self._read(_pool_of(asked)))
            except (RestError, URLError, OSError) as error:
                log.warning("the signals of %s cannot be read: %s", asked.name, error)
                continue
            if now != last:
                last = now
                yield IsActiveResponse(result=now)

    async def metric_spec(self, asked: ScaledObjectRef, context: ServicerContext[Any, Any]) -> GetMetricSpecResponse:
        """What the HPA divides the metric by: of `desired_engines` 1, so that it wants just as many."""
        name, target = await self._metric(asked, context)
        whole = int(target) if target.is_integer() else 0
        return GetMetricSpecResponse(
            metricSpecs=[MetricSpec(metricName=name, targetSize=whole, targetSizeFloat=target)]
        )

    async def metrics(self, asked: GetMetricsRequest, context: ServicerContext[Any, Any]) -> GetMetricsResponse:
        name, _ = await self._metric(asked.scaledObjectRef, context)
        value = (await self._signals(asked.scaledObjectRef, context))[name]
        if value is None:
            await _refuse(context, grpc.StatusCode.UNAVAILABLE, f"{name} of this pool is not known now")
        # A KEDA of before the fractions reads whole numbers alone, and none as 0: as few replicas as there may be.
        told = min(float(value), _MOST)
        values = [MetricValue(metricName=name, metricValue=math.ceil(told), metricValueFloat=told)]
        return GetMetricsResponse(metricValues=values)

    async def _metric(self, asked: ScaledObjectRef, context: ServicerContext[Any, Any]) -> tuple[str, float]:
        given = dict(asked.scalerMetadata)
        name = given.get("signal", DESIRED)
        if name not in SIGNALS:
            says = f"metadata signal {name!r} is not known; give one of {', '.join(SIGNALS)}"
            await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, says)
        try:
            target = float(given.get("target", "1" if name == DESIRED else ""))
        except ValueError:
            target = 0
        if not _LEAST <= target <= _MOST:
            says = (
                f"metadata target is needed for {name}, a number from {_LEAST:g} to {_MOST:g}: so much of it is one "
                "engine's part"
            )
            await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, says)
        return name, target

    async def _signals(self, asked: ScaledObjectRef, context: ServicerContext[Any, Any]) -> Document:
        pool = _pool_of(asked)
        if not pool:
            says = "metadata pool is needed: the name of a pool, as the control plane has it"
            await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, says)
        try:
            return await self._read(pool)
        except RestError as error:
            missing = error.status == HTTPStatus.NOT_FOUND
            code = grpc.StatusCode.NOT_FOUND if missing else grpc.StatusCode.UNAVAILABLE
            await _refuse(context, code, f"the control plane answered {error.status} for pool {pool!r}")
        except (URLError, OSError) as error:
            await _refuse(context, grpc.StatusCode.UNAVAILABLE, f"the control plane cannot be reached: {error}")

    async def _read(self, pool: str) -> Document:
        path = f"/scale-signals/{quote(pool, safe='')}"
        answer: Document = await asyncio.to_thread(self._rest.call, "GET", path, timeout_seconds=_CALL_SECONDS)
        return answer


def _pool_of(asked: ScaledObjectRef) -> str:
    return str(asked.scalerMetadata.get("pool", ""))


def _is_active(signals: Document) -> bool:
    told = [signals[name] for name in ("queue_length", "held_tokens")]
    return None in told or any(told)


async def _refuse(context: ServicerContext[Any, Any], code: grpc.StatusCode, says: str) -> NoReturn:
    await context.abort(code, says)
    raise AssertionError("abort raises")


def server_of(scaler: Scaler) -> grpc.aio.Server:
    """A server without a port."""
    server = grpc.aio.server()
    calls = {
        "IsActive": grpc.unary_unary_rpc_method_handler(
            scaler.is_active, ScaledObjectRef.FromString, IsActiveResponse.SerializeToString
        ),
        "StreamIsActive": grpc.unary_stream_rpc_method_handler(
            scaler.stream_is_active, ScaledObjectRef.FromString, IsActiveResponse.SerializeToString
        ),
        "GetMetricSpec": grpc.unary_unary_rpc_method_handler(
            scaler.metric_spec, ScaledObjectRef.FromString, GetMetricSpecResponse.SerializeToString
        ),
        "GetMetrics": grpc.unary_unary_rpc_method_handler(
            scaler.metrics, GetMetricsRequest.FromString, GetMetricsResponse.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, calls)])
    return server


async def serve(rest: Rest, host: str, port: int, certificate: tuple[bytes, bytes] | None) -> None:
    """Until SIGTERM or SIGINT. `certificate`: key and chain in PEM; None: no TLS. Raises: RuntimeError, no port."""
    server = server_of(Scaler(rest))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if certificate is None:
        bound = server.add_insecure_port(address)
    else:
        bound = server.add_secure_port(address, grpc.ssl_server_credentials([certificate]))
    await server.start()
    print(f"KEDA's external scaler listens at {host}:{bound}", flush=True)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, ended.set)
    await ended.wait()
    await server.stop(_GRACE_SECONDS)
