"""The manifests of deploy/kubernetes: hardened pods, settings and pages that exist, and busy pods left alone."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from controlplane import cli
from gateway import settings as gateway_settings
from tests.deploy.compose import ROOT, programs
from tests.deploy.rows import ROWS

FOLDER = ROOT / "deploy/kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
DOCUMENTS: list[dict[str, Any]] = [
    document for file in KUSTOMIZATION["resources"] for document in yaml.safe_load_all((FOLDER / file).read_text())
]
WORKLOADS = {
    document["metadata"]["name"]: document
    for document in DOCUMENTS
    if document["kind"] in ("Deployment", "StatefulSet", "DaemonSet")
}
# Of the pod itself, and of NVIDIA's container runtime.
FOREIGN = {"NODE_NAME", "POD_NAME", "POD_IP", "TMPDIR", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}


def pod_of(name: str) -> dict[str, Any]:
    pod: dict[str, Any] = WORKLOADS[name]["spec"]["template"]["spec"]
    return pod


def containers(name: str) -> Iterator[dict[str, Any]]:
    yield from pod_of(name).get("initContainers", [])
    yield from pod_of(name)["containers"]


def settings_map() -> dict[str, str]:
    (found,) = (document["data"] for document in DOCUMENTS if document["kind"] == "ConfigMap")
    assert isinstance(found, dict)
    return found


def environment(container: dict[str, Any]) -> dict[str, str]:
    """What is given in clear; what the pod tells of itself is left as its reference."""
    given = dict(settings_map()) if "envFrom" in container else {}
    return given | {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}


def test_the_profile_is_whole():
    assert set(WORKLOADS) == {f"headworks-{part}" for part in ("agent", "gateway", "web", "worker", "beat")}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_pod_may_do_no_more_than_it_must(name):
    pod = pod_of(name)
    assert pod["automountServiceAccountToken"] is False
    for container in containers(name):
        rights = container["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["capabilities"]["drop"] == ["ALL"]
        assert "memory" in container["resources"]["limits"]
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        if name != "headworks-agent":
            assert "add" not in rights["capabilities"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert not {"hostPID", "hostNetwork", "hostIPC"} & set(pod)


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_images_are_pinned_and_name_no_registry(name):
    built = {image["name"]: image["newTag"] for image in KUSTOMIZATION["images"]}
    for container in containers(name):
        image, _, tag = container["image"].partition(":")
        assert re.fullmatch(r"headworks-[a-z]+", image)
        assert tag == built[image]


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_every_setting_is_one_and_its_value_is_taken(name):
    for container in containers(name):
        for variable, value in environment(container).items():
            if variable in FOREIGN:
                continue
            row = ROWS[variable]
            if variable == row.name:
                assert not row.secret or "@" not in value or ":" not in value.split("//")[-1].split("@")[0]
                row.read({variable: re.sub(r"\$\(\w+\)", "node-1", value)})


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_what_is_mounted_is_there(name):
    pod = pod_of(name)
    claims = WORKLOADS[name]["spec"].get("volumeClaimTemplates", [])
    volumes = {volume["name"] for volume in pod["volumes"]} | {claim["metadata"]["name"] for claim in claims}
    used = {mount["name"] for container in containers(name) for mount in container["volumeMounts"]}
    assert used == volumes


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_command_is_one_of_the_program(name):
    for container in containers(name):
        command = container.get("command")
        if command is None:
            assert f"headworks-{container['name']}" in programs()
        else:
            assert command[0] == "headworks"
            assert isinstance(cli._parser().parse_args(command[1:]), argparse.Namespace)


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_nothing_that_waits_for_others_starts_a_pod_again(name):
    """Readiness may ask whether others answer; liveness must not, and must be slow to judge a busy process."""
    (container,) = pod_of(name)["containers"]
    probe = container["livenessProbe"]
    assert probe.get("httpGet", {}).get("path", "/healthz") == "/healthz"
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 60


def test_the_pages_of_the_probes_exist():
    asked = {
        (name, probe["httpGet"]["path"])
        for name in WORKLOADS
        for container in pod_of(name)["containers"]
        for probe in (container.get("livenessProbe", {}), container.get("readinessProbe", {}))
        if "httpGet" in probe
    }
    known = {
        "headworks-agent": "gpu_agent/page/pages.py",
        "headworks-gateway": "gateway/app.py",
        "headworks-web": "controlplane/urls.py",
    }
    for name, path in asked:
        assert path.removeprefix("/") in (ROOT / known[name]).read_text()


def test_a_gateway_is_not_killed_while_it_drains():
    (container,) = pod_of("headworks-gateway")["containers"]
    drain = gateway_settings.DRAIN_SECONDS.read(environment(container))
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    last = gateway_settings.LAST_SEND_SECONDS.read({})
    assert pod_of("headworks-gateway")["terminationGracePeriodSeconds"] >= pause + drain + last


def test_the_overlay_for_the_kernels_log_changes_the_agent_alone():
    overlay = yaml.safe_load((FOLDER / "kmsg/kustomization.yaml").read_text())
    assert overlay["resources"] == [".."]
    (patch,) = overlay["patches"]
    assert patch["target"] == {"kind": "DaemonSet", "name": "headworks-agent"}
    for change in yaml.safe_load(patch["patch"]):
        node: Any = WORKLOADS["headworks-agent"]
        *parents, _ = change["path"].split("/")[1:]
        for key in parents:
            node = node[int(key)] if isinstance(node, list) else node[key]
        assert node


VLLM = {document["kind"]: document for document in yaml.safe_load_all((FOLDER / "vllm/vllm.yaml").read_text())}


def test_an_engine_is_out_of_service_and_empty_before_it_is_ended():
    (container,) = VLLM["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    asked = container["lifecycle"]["preStop"]["httpGet"]
    name = VLLM["StatefulSet"]["metadata"]["name"]
    path, _, query = asked["path"].partition("?")
    assert path == f"/engines/{name}/pre-stop"
    limit_seconds = int(query.removeprefix("limit="))
    assert VLLM["StatefulSet"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= limit_seconds + 60
    listen = environment(next(containers("headworks-agent")))["HEADWORKS_AGENT_LISTEN"]
    for get in (asked, container["readinessProbe"]["httpGet"]):
        assert f"{get['host']}:{get['port']}" == listen
    assert container["readinessProbe"]["httpGet"]["path"] == f"/engines/{name}/readyz"
    # What was taken out is still reached by what runs.
    assert VLLM["Service"]["spec"]["publishNotReadyAddresses"] is True


def test_an_engine_may_load_for_long_and_is_not_ended_for_being_busy():
    (container,) = VLLM["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 1200
    assert liveness["httpGet"] == startup["httpGet"] == {"port": 8000, "path": "/health"}
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 60


def test_the_overlay_of_an_engine_has_its_files_and_pins_its_image():
    overlay = yaml.safe_load((FOLDER / "vllm/kustomization.yaml").read_text())
    assert all((FOLDER / "vllm" / file).exists() for file in overlay["resources"])
    (container,) = VLLM["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "{name}:{newTag}".format(**overlay["images"][0])
