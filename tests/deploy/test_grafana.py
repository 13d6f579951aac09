"""Grafana's files: provisioning that names what is there, and a service that may do no more than it must."""

from __future__ import annotations

import re

import yaml

from docs.generate import FILES
from tests.deploy.compose import FILE, ROOT, read

FOLDER = ROOT / "deploy/grafana"
COMPOSE = ROOT / "deploy/docker/compose.grafana.yml"


def provisioning(kind):
    return yaml.safe_load((FOLDER / f"provisioning/{kind}/headworks.yml").read_text())


def test_the_data_source_is_the_prometheus_api_with_a_token_of_the_environment():
    [source] = provisioning("datasources")["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "${HEADWORKS_URL}/prometheus")
    assert source["jsonData"]["httpHeaderName1"] == "Authorization"
    assert source["secureJsonData"]["httpHeaderValue1"] == "Bearer ${HEADWORKS_TOKEN}"


def test_every_board_that_is_made_is_provided():
    made = {name.removeprefix("grafana/boards/") for name in FILES if name.startswith("grafana/")}
    assert {file.name for file in (FOLDER / "boards").iterdir()} == made
    [provider] = provisioning("dashboards")["providers"]
    service = read(COMPOSE)["services"]["grafana"]
    assert f"./deploy/grafana/boards:{provider['options']['path']}:ro" in service["volumes"]


def test_the_service_may_do_no_more_than_it_must():
    service = read(COMPOSE)["services"]["grafana"]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["ports"] == ["127.0.0.1:3000:3000"]
    assert re.fullmatch(r"grafana/grafana:\d+\.\d+\.\d+", service["image"])
    assert {"cpus", "memory", "pids"} == set(service["deploy"]["resources"]["limits"])
    assert set(service["networks"]) <= set(read(FILE)["networks"])


def test_what_the_data_source_needs_the_service_has():
    needed = set(re.findall(r"\$\{(\w+)\}", (FOLDER / "provisioning/datasources/headworks.yml").read_text()))
    assert needed
    assert needed <= set(read(COMPOSE)["services"]["grafana"]["environment"])
