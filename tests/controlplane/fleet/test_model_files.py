"""Files of models on nodes: manifests, what agents tell, and asking for more."""

from __future__ import annotations

import hashlib
import json

import pytest
from django.utils import timezone

from controlplane.cli import main
from controlplane.core.fields import epoch_ms
from controlplane.fleet.manifest_command import manifest_of
from controlplane.fleet.model_files import missing
from controlplane.fleet.models import Model, NodeModelFiles
from tests.controlplane.core.configuration import compiled
from tests.controlplane.fleet.conftest import ENGINE, MODEL, enrolled, problem_paths
from wire.manifest import write_manifest

FOLDER = "/srv/models/llama"


@pytest.fixture
def manifest(tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "a.safetensors").write_bytes(b"w" * 1000)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "lock").touch()
    return write_manifest(manifest_of(tmp_path))


@pytest.fixture
def with_files(fleet, upload, manifest):
    """The fleet, whose model has a manifest."""
    sha256 = upload(manifest, name="llama", kind="model_manifest").json()["item"]["sha256"]
    assert fleet.patch(f"/models/{MODEL}", {"manifest": sha256, "files_folder": FOLDER}).status_code == 200
    return fleet


def sha_of_model():
    return Model.objects.values_list("manifest__sha256", flat=True).get()


def tell(agent, state, sha256=None, **facts):
    files = {
        "manifest": sha256 or sha_of_model(), "folder": FOLDER, "state": state, "present_bytes": 10,
        "total_bytes": 1002, "at_ms": epoch_ms(timezone.now()), **facts,
    }  # fmt: skip
    assert agent.post("/nodes/report", {"version": "1", "model_files": [files]}).status_code == 200


def test_the_command_prints_the_manifest_of_a_folder(tmp_path, manifest, capfdbinary):
    assert main(["model-manifest", str(tmp_path)]) == 0
    assert capfdbinary.readouterr().out == manifest
    files = manifest_of(tmp_path).files
    assert files.keys() == {"config.json", "weights/a.safetensors"}
    assert files["config.json"].sha256 == hashlib.sha256(b"{}").hexdigest()


@pytest.mark.parametrize("folder", ["nowhere", "empty"])
def test_the_command_says_why_there_is_no_manifest(tmp_path, capfd, folder):
    (tmp_path / "empty").mkdir()
    assert main(["model-manifest", str(tmp_path / folder)]) == 1
    assert f"no manifest of {tmp_path}/{folder}: " in capfd.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"{}",
        b'{"files": {}}',
        b'{"files": {"/etc/passwd": {"size_bytes": 1, "sha256": "%b"}}}' % (b"a" * 64),
        b'{"files": {"../x": {"size_bytes": 1, "sha256": "%b"}}}' % (b"a" * 64),
        b'{"files": {"a//x": {"size_bytes": 1, "sha256": "%b"}}}' % (b"a" * 64),
        b'{"files": {"x": {"size_bytes": -1, "sha256": "%b"}}}' % (b"a" * 64),
        b'{"files": {"x": {"size_bytes": 1, "sha256": "abc"}}}',
        b'{"files": {"a": {"size_bytes": 1, "sha256": "%b"}, "a/b": {"size_bytes": 1, "sha256": "%b"}}}'
        % (b"a" * 64, b"a" * 64),
    ],
)
def test_what_is_no_manifest_is_refused(upload, content):
    assert problem_paths(upload(content, name="m", kind="model_manifest")) == {"/"}


def test_a_model_names_its_manifest_and_its_folder(with_files):
    shown = with_files.get(f"/models/{MODEL}").json()
    assert (shown["manifest"], shown["files_folder"]) == (sha_of_model(), FOLDER)
    assert compiled("models", MODEL)["manifest"] == sha_of_model()
    assert with_files.delete(f"/artifacts/{sha_of_model()}").status_code == 409
    with_files.patch(f"/models/{MODEL}", {"manifest": None, "files_folder": None})
    assert "manifest" not in compiled("models", MODEL)


def test_a_file_of_another_kind_is_no_manifest(fleet, upload, tokenizer_file):
    sha256 = upload(tokenizer_file).json()["item"]["sha256"]
    assert problem_paths(fleet.patch(f"/models/{MODEL}", {"manifest": sha256})) == {"/manifest"}
    assert problem_paths(fleet.patch(f"/models/{MODEL}", {"files_folder": "models"})) == {"/files_folder"}


def test_what_agents_tell_is_listed_with_the_models_it_is_of(with_files):
    agent = enrolled(with_files, "n1")
    tell(agent, "partial", detail="lack: config.json")
    (item,) = with_files.get("/model-files").json()["items"]
    assert (item["node"], item["models"], item["state"]) == ("n1", [MODEL], "partial")
    assert (item["present_bytes"], item["total_bytes"], item["act"]) == (10, 1002, None)
    assert with_files.get(f"/model-files?model={MODEL}&node=n1").json()["items"] == [item]
    assert with_files.get("/model-files?node=n2").status_code == 404
    agent.post("/nodes/report", {"version": "1"})
    assert not NodeModelFiles.objects.exists()


def test_files_count_as_there_only_when_they_were_read_whole(with_files):
    model = Model.objects.get()
    (never,) = missing(model, ["n1"])
    body = json.dumps({"model": MODEL, "nodes": ["n1"]})
    assert (
        never
        == f"node n1: the files of {MODEL} in {FOLDER} were never looked at; POST /api/v1/model-files/fetch {body}"
    )
    agent = enrolled(with_files, "n1")
    for state, said, verb in (
        ("partial", "are partial: lack: x", "fetch"),
        ("present", "are of the right size, and were not read", "check"),
        ("damaged", "are damaged: lack: x", "fetch"),
    ):
        tell(agent, state, detail="lack: x")
        assert missing(model, ["n1"])[0].endswith(f"in {FOLDER} {said}; POST /api/v1/model-files/{verb} {body}")
    tell(agent, "whole")
    assert missing(model, ["n1", "n1"]) == []
    assert len(missing(model, ["n1", "n2"])) == 1
    # Another manifest is another set of files.
    tell(agent, "whole", sha256="b" * 64)
    assert len(missing(model, ["n1"])) == 1


def test_a_model_without_a_manifest_lacks_nothing(fleet):
    assert missing(Model.objects.get(), ["n1"]) == []


def test_each_node_that_serves_the_model_is_asked_to_fetch(with_files):
    with_files.post("/nodes", {"name": "n2"})
    with_files.post("/engines", {**ENGINE, "name": "e2", "node": "n2"})
    agents = {name: enrolled(with_files, name) for name in ("n1", "n2")}
    asked = with_files.post("/model-files/fetch", {"model": MODEL})
    assert asked.status_code == 201
    made = asked.json()["item"]["acts"]
    arguments = {"manifest": sha_of_model(), "folder": FOLDER}
    assert [(act["node"], act["action"], act["arguments"]) for act in made] == [
        (name, "fetch_model", arguments) for name in ("n1", "n2")
    ]
    running = {"id": made[0]["id"], "state": "running", "at_ms": epoch_ms(timezone.now()), "progress_permille": 250}
    agents["n1"].post("/nodes/report", {"version": "1", "acts": [running]})
    tell(agents["n1"], "partial")
    (item,) = with_files.get("/model-files").json()["items"]
    assert (item["act"]["action"], item["act"]["progress_permille"]) == ("fetch_model", 250)
    only = with_files.post("/model-files/check", {"model": MODEL, "nodes": ["n2"]}).json()["item"]["acts"]
    assert [(act["node"], act["action"]) for act in only] == [("n2", "check_model")]


def test_a_dry_run_asks_nobody(with_files):
    enrolled(with_files, "n1")
    assert with_files.post("/model-files/fetch?dry_run=true", {"model": MODEL}).status_code == 201
    assert with_files.get("/acts").json()["items"] == []


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "/model"),
        ({"model": "nobody"}, "/model"),
        ({"model": MODEL}, "/model"),
        ({"model": MODEL, "nodes": []}, "/nodes"),
        ({"model": MODEL, "folder": "/x"}, "/folder"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_by_name(fleet, body, path):
    assert problem_paths(fleet.post("/model-files/fetch", body)) == {path}


def test_a_node_without_an_agent_is_told_and_no_other_is_asked(with_files):
    with_files.post("/nodes", {"name": "n2"})
    enrolled(with_files, "n1")
    assert problem_paths(with_files.post("/model-files/fetch", {"model": MODEL, "nodes": ["n1", "n2"]})) == {"/node"}
    assert with_files.get("/acts").json()["items"] == []
