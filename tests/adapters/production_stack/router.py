"""How production-stack's router reads its dynamic configuration file, as its source has it.

Source: vllm-project/production-stack, src/vllm_router/{dynamic_config,utils,service_discovery}.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

_URL = re.compile(r"^(http|https)://(([a-zA-Z0-9_-]+\.)+[a-zA-Z]{2,}|localhost|\d{1,3}(\.\d{1,3}){3})(:\d+)?(/.*)?$")


class DynamicRouterConfig(msgspec.Struct, forbid_unknown_fields=True):
    """Its fields, types and defaults: a field that is not among them ends the reading of the file."""

    service_discovery: str
    routing_logic: str
    static_backends: str | None = None
    static_models: str | None = None
    static_aliases: str | None = None
    static_model_labels: str | None = None
    static_model_types: str | None = None
    static_backend_health_checks: bool | None = False
    static_backend_health_check_interval: int | None = 60
    static_backend_health_check_timeout_seconds: int | None = 10
    prefill_model_labels: str | None = None
    decode_model_labels: str | None = None
    k8s_port: int | None = None
    k8s_namespace: str | None = None
    k8s_label_selector: str | None = None
    session_key: str | None = None
    callbacks: str | None = None


@dataclass(frozen=True)
class Read:
    """What the router routes by after reading: (address, model) of each backend, and alias → model."""

    backends: tuple[tuple[str, str], ...]
    aliases: dict[str, str]
    config: DynamicRouterConfig


def read(content: bytes) -> Read:
    """Raises where the router would log an error and keep what it had."""
    config = msgspec.json.decode(content, type=DynamicRouterConfig)
    assert config.service_discovery == "static"
    assert config.static_backends is not None
    assert config.static_models is not None
    assert config.static_model_types is not None
    urls = [url for url in config.static_backends.split(",") if _URL.match(url)]
    models = config.static_models.split(",")
    assert len(urls) == len(models) == len(config.static_model_types.split(","))
    aliases = {}
    for entry in config.static_aliases.split(",") if config.static_aliases else ():
        alias, model = entry.split(":")
        aliases[alias] = model
    return Read(tuple(zip(urls, models, strict=True)), aliases, config)
