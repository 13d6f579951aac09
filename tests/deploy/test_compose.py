"""What docker-compose.yml must say: hardened services that can be told to be healthy, and settings that exist."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane import cli
from gateway import settings as gateway_settings
from tests.deploy.compose import FILE, GPU_FILE, ROOT, VARIABLE, ours, read, seconds
from tests.deploy.rows import ROWS

CONTENT = read()
SERVICES: dict[str, dict[str, Any]] = CONTENT["services"]
LONG_RUNNING = sorted(set(SERVICES) - {"migrate"})
FILE_VARIABLES = {variable: row for variable, row in ROWS.items() if variable != row.name}


def test_the_profile_is_whole():
    assert set(SERVICES) == {
        "migrate", "web", "worker", "beat", "gateway", "agent", "postgresql", "redis", "victoriametrics",
        "alertmanager",
    }  # fmt: skip
    assert set(ours()) == {"migrate", "web", "worker", "beat", "gateway", "agent"}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_may_do_no_more_than_it_must(name):
    service = SERVICES[name]
    user, _, group = service["user"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"} & set(service) == set()
    assert {"cpus", "memory", "pids"} == set(service["deploy"]["resources"]["limits"])
    assert service["logging"]["options"]["max-size"]


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_a_service_that_runs_on_is_watched_and_started_again(name):
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    check = service["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    assert len(check["test"]) > 1
    assert seconds(check["timeout"]) <= seconds(check["interval"])
    assert check["retries"] >= 2


def test_the_migration_runs_once():
    assert SERVICES["migrate"]["restart"] == "no"
    assert "healthcheck" not in SERVICES["migrate"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_waits_for_what_can_be_waited_for(name):
    for other, wanted in SERVICES[name].get("depends_on", {}).items():
        if wanted["condition"] == "service_completed_successfully":
            assert other == "migrate"
        else:
            assert wanted["condition"] == "service_healthy"
            assert "healthcheck" in SERVICES[other]


@pytest.mark.parametrize("name", ["web", "worker", "beat"])
def test_what_uses_the_database_waits_for_its_migration(name):
    assert SERVICES[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"


def test_what_is_declared_is_used_and_the_other_way_round():
    used = {
        "networks": {name for service in SERVICES.values() for name in service["networks"]},
        "secrets": {name for service in SERVICES.values() for name in service.get("secrets", [])},
        "configs": {config["source"] for service in SERVICES.values() for config in service.get("configs", [])},
        "volumes": {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])},
    }
    assert {kind: set(CONTENT[kind]) for kind in used} == used


def test_configuration_files_exist():
    assert [config["file"] for config in CONTENT["configs"].values() if not (ROOT / config["file"]).is_file()] == []


def test_only_web_and_gateway_are_reached_from_outside_and_only_from_this_machine_at_first():
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"web": ["127.0.0.1:8600:8600"], "gateway": ["127.0.0.1:8400:8400"]}


def test_databases_are_reached_by_the_control_plane_alone():
    assert CONTENT["networks"]["data"] == {"internal": True}
    for name in ("postgresql", "redis", "victoriametrics"):
        assert SERVICES[name]["networks"] == ["data"]
    for name in ("gateway", "agent"):
        assert SERVICES[name]["networks"] == ["fleet"]


def test_web_alone_of_the_control_plane_is_reached_by_the_fleet():
    on_fleet = {name for name, service in SERVICES.items() if "fleet" in service["networks"]}
    assert on_fleet == {"web", "gateway", "agent"}


def test_images_are_pinned_and_name_no_registry():
    for service in SERVICES.values():
        found = re.fullmatch(r"(?P<first>[a-z0-9-]+)(/[a-z0-9-]+)?:v?\d+(\.\d+)+", service["image"])
        assert found, service["image"]
        # Built here: an image of that name from anywhere else is a stranger's.
        assert ("build" in service) == (service.get("pull_policy") == "never") == found["first"].startswith("headworks")


def test_services_of_one_image_build_it_alike():
    builds: dict[str, Any] = {}
    for service in SERVICES.values():
        if "build" in service:
            assert builds.setdefault(service["image"], service["build"]) == service["build"]
            assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def settings_of(service: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in service["environment"].items():
        assert isinstance(value, str), f"{name}: quote {value!r}, for Compose hands on text"
        yield name, value


@pytest.mark.parametrize("name", sorted(ours()))
def test_every_setting_is_one_and_its_value_is_taken(name):
    service = SERVICES[name]
    for variable, value in settings_of(service):
        if variable == "TMPDIR":
            # Python's own. What needs it must be on disk.
            assert any(mount.split(":")[1] == value for mount in service["volumes"])
        elif row := FILE_VARIABLES.get(variable):
            assert row.secret
            assert value.removeprefix("/run/secrets/") in service["secrets"]
        else:
            ROWS[variable].read({variable: value})


@pytest.mark.parametrize("name", sorted(ours()))
def test_settings_are_of_the_program_that_reads_them(name):
    prefix = {"gateway": "HEADWORKS_GATEWAY_", "agent": "HEADWORKS_AGENT_"}.get(name)
    own = set(SERVICES[name]["environment"])
    if prefix:
        assert {variable for variable in own if not variable.startswith(prefix)} == set()
    else:
        assert {
            variable for variable in own if variable.startswith(("HEADWORKS_GATEWAY_", "HEADWORKS_AGENT_"))
        } == set()


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_secret_stands_in_an_environment(name):
    environment = SERVICES[name].get("environment", {})
    in_address = [value for value in environment.values() if re.search(r"://[^/@]*:[^/@]*@", value)]
    assert in_address == []
    secret_rows = {row.name for row in ROWS.values() if row.secret}
    assert {variable for variable in environment if variable in secret_rows} <= {
        # Addresses without credentials.
        "HEADWORKS_DATABASE_URL",
        "HEADWORKS_REDIS_URL",
    }
    assert {variable for variable in environment if "PASSWORD" in variable and not variable.endswith("_FILE")} == set()


@pytest.mark.parametrize("file", [FILE, GPU_FILE], ids=lambda file: file.name)
def test_a_variable_has_a_default_and_the_name_of_the_setting_that_it_fills(file):
    text = file.read_text()
    assert "$" not in VARIABLE.sub("", text.replace("${…}", "")), "a variable without a default"
    own = {"HEADWORKS_PUBLISH_ADDRESS"}
    assert {found["name"] for found in VARIABLE.finditer(text)} - own <= set(ROWS)


@pytest.mark.parametrize("name", sorted(name for name in ours() if name not in ("gateway", "agent")))
def test_a_command_is_one_of_the_program(name):
    program, *words = SERVICES[name]["command"]
    assert program == "headworks"
    assert isinstance(cli._parser().parse_args(words), argparse.Namespace)


def test_gateway_and_agent_take_all_from_their_settings():
    assert (SERVICES["gateway"]["command"], SERVICES["agent"]["command"]) == (
        ["headworks-gateway"],
        ["headworks-agent"],
    )


def test_a_gateway_is_not_killed_while_it_drains():
    drain = gateway_settings.DRAIN_SECONDS.read(SERVICES["gateway"]["environment"])
    assert seconds(SERVICES["gateway"]["stop_grace_period"]) >= drain + gateway_settings.LAST_SEND_SECONDS.read({})


def test_the_override_for_gpus_changes_the_agent_alone():
    override = read(GPU_FILE)
    assert set(override["services"]) == {"agent"}
    agent = override["services"]["agent"]
    (volume,) = agent["volumes"]
    name, _, folder = volume.partition(":")
    assert set(override["volumes"]) == {name}
    assert agent["environment"] == {"HEADWORKS_AGENT_STATE_DIR": folder}
    assert folder in agent["healthcheck"]["test"][-1]
    assert agent["cap_add"] == ["SYSLOG"]


def test_alertmanager_and_victoriametrics_read_what_is_mounted():
    for name in ("alertmanager", "victoriametrics"):
        service = SERVICES[name]
        mounted = {volume.partition(":")[2] for volume in service["volumes"]}
        mounted |= {config["target"] for config in service.get("configs", ())}
        assert mounted <= {option.partition("=")[2] for option in service["command"]}
