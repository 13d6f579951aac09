"""Fetching and checking a model's files, by a script as a site would have one."""

from __future__ import annotations

import hashlib
import json
from contextlib import asynccontextmanager, suppress

import pytest

from gpu_agent.acts.doing import do_on_node
from gpu_agent.acts.outcome import NotDone
from gpu_agent.acts.tools import NodeWork
from gpu_agent.model_files.keeper import ModelFiles
from gpu_agent.policy import NodePolicy
from tests.gpu_agent.acts.works import no_keep, script, tools, until
from tests.services import Process
from wire.acts import CheckModel, FetchModel

FILES = {"config.json": b"{}", "weights/a.safetensors": b"w" * 100_000}


def manifest_of(files=FILES):
    entries = {
        path: {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for path, content in files.items()
    }
    return json.dumps({"files": entries}).encode()


CONTENT = manifest_of()
SHA = hashlib.sha256(CONTENT).hexdigest()


class Node:
    """`progress`: what was told. `asked`: paths of the control plane."""

    def __init__(self, folder, **policy):
        self.models, self.state, self.progress, self.asked, self.answer = (
            folder / "models",
            folder / "state",
            [],
            [],
            CONTENT,
        )
        self.models.mkdir(exist_ok=True)
        self.target = self.models / "llama"
        self.copy = script(
            folder / "fetch",
            f'echo "$@" >>{folder}/runs\nwhile [ -e {folder}/hold ]; do sleep 0.02; done\n'
            f'mkdir -p "$2/weights"; cp {folder}/source/config.json "$2"; cp {folder}/source/weights/* "$2/weights"',
        )
        (folder / "source" / "weights").mkdir(parents=True, exist_ok=True)
        for path, content in FILES.items():
            (folder / "source" / path).write_bytes(content)
        given = {"fetch_command": [str(self.copy), "{manifest}", "{folder}"], "model_folders": [str(self.models)]}
        self.policy = NodePolicy(allow=["fetch_model", "check_model"], **(given | policy))
        self.runs_file = folder / "runs"
        self.begin()

    def begin(self):
        """A new run of the agent."""
        self.files = ModelFiles(self.state, self.get, lambda: None)

    async def get(self, path):
        self.asked.append(path)
        return self.answer

    @property
    def runs(self):
        return self.runs_file.read_text().splitlines() if self.runs_file.exists() else []

    async def do(self, kind, folder=None, limit_seconds=20):
        work = NodeWork(self.policy, {}, no_keep, self.progress.append, tools(files=self.files))
        return await do_on_node(kind(SHA, str(folder or self.target), limit_seconds), work)

    def put(self, files=FILES):
        for path, content in files.items():
            (self.target / path).parent.mkdir(parents=True, exist_ok=True)
            (self.target / path).write_bytes(content)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


async def test_files_are_fetched_once_read_and_reported_whole(node):
    said = await node.do(FetchModel)
    assert said == f"whole: 100,002 bytes in {node.target}"
    (report,) = node.files.reports()
    assert (report.state, report.present_bytes, report.total_bytes) == ("whole", 100_002, 100_002)
    assert node.progress[-1] == 1000
    assert node.runs == [f"{node.state}/manifests/{SHA}.json {node.target}"]
    assert (await node.do(FetchModel)).startswith("whole: ")
    assert len(node.runs) == 1
    assert node.asked == [f"/api/v1/artifacts/{SHA}"]


async def test_a_check_reads_only_what_changed_since(node, monkeypatch):
    node.put()
    assert (await node.do(CheckModel)).startswith("whole: ")
    node.begin()
    node.progress.clear()
    # What was read before is known to the next run of the agent.
    assert (await node.do(CheckModel)).startswith("whole: ")
    assert node.progress == []
    (node.target / "config.json").write_bytes(b"[]")
    with pytest.raises(NotDone, match=r"the files are damaged: differ: config\.json") as failure:
        await node.do(CheckModel)
    assert failure.value.reason == "files_differ"
    assert node.files.reports()[0].state == "damaged"


@pytest.mark.parametrize(
    ("files", "state", "said"),
    [
        ({}, "absent", "lack: config.json, weights/a.safetensors"),
        ({"config.json": b"{}"}, "partial", "lack: weights/a.safetensors"),
        ({**FILES, "weights/a.safetensors": b"w" * 99}, "partial", "lack: weights/a.safetensors"),
        ({**FILES, "config.json": b"{} "}, "damaged", "differ: config.json"),
        ({**FILES, "config.json": b"[]"}, "damaged", "differ: config.json"),
    ],
)
async def test_what_lacks_or_differs_is_named(node, files, state, said):
    node.put(files)
    with pytest.raises(NotDone, match=f"the files are {state}: {said}"):
        await node.do(CheckModel)
    assert node.files.reports()[0].state == state


async def test_a_folder_where_a_file_should_be_is_wrong_and_hangs_nothing(node):
    node.put({"weights/a.safetensors": FILES["weights/a.safetensors"]})
    (node.target / "config.json").mkdir()
    with pytest.raises(NotDone, match=r"damaged: differ: config\.json"):
        await node.do(CheckModel)


async def test_damaged_files_are_fetched_again(node):
    node.put({**FILES, "config.json": b"{} "})
    assert (await node.do(FetchModel)).startswith("whole: ")
    assert len(node.runs) == 1


@pytest.mark.parametrize("folder", ["/etc/llama", "{models}", "{models}/../llama", "{models}/link/llama"])
async def test_no_other_folder_than_those_of_the_policy_is_touched(node, tmp_path, folder):
    (node.models / "link").symlink_to(tmp_path)
    with pytest.raises(NotDone, match="is not below a folder of this node's policy") as refusal:
        await node.do(FetchModel, folder.format(models=node.models))
    assert (refusal.value.state, refusal.value.reason, node.runs) == ("refused", "path_not_allowed", [])


async def test_a_manifest_of_other_bytes_is_not_used(node):
    node.answer = manifest_of({"x": b""})
    with pytest.raises(NotDone, match="bytes of another SHA-256") as refusal:
        await node.do(FetchModel)
    assert (refusal.value.reason, node.runs) == ("no_manifest", [])


async def test_a_command_that_fails_says_its_last_words(tmp_path):
    broken = script(tmp_path / "broken", "echo 'no such bucket' >&2; exit 3")
    node = Node(tmp_path, fetch_command=[str(broken)])
    with pytest.raises(NotDone, match="the fetch command ended with status 3, and wrote last: no such bucket"):
        await node.do(FetchModel)


async def test_a_command_that_brings_too_little_is_told(tmp_path):
    node = Node(tmp_path, fetch_command=["/bin/true"])
    with pytest.raises(NotDone, match="the files are absent: lack: "):
        await node.do(FetchModel)


@asynccontextmanager
async def left_behind(node, tmp_path):
    """A fetch whose agent was killed: it holds the lock that it inherited."""
    hold = tmp_path / "hold"
    hold.touch()
    command = ["flock", "--no-fork", "--exclusive", str(node.files.lock_file), str(node.copy), "m", str(node.target)]
    with Process(command, log=tmp_path / "left-log") as process:
        try:
            await until(lambda: len(node.runs) == 1)
            yield hold
        finally:
            with suppress(FileNotFoundError):
                hold.unlink()
            process.wait()


async def test_a_fetch_that_a_killed_agent_left_behind_is_waited_for_and_not_begun_twice(node, tmp_path):
    async with left_behind(node, tmp_path) as hold:
        with pytest.raises(NotDone, match="a former run of the agent began is still under way"):
            await node.do(FetchModel, limit_seconds=1)
        hold.unlink()
        assert (await node.do(FetchModel)).startswith("whole: ")
    assert len(node.runs) == 1


async def test_the_command_holds_the_lock_for_as_long_as_it_runs(tmp_path):
    """So that it is waited for when its agent is gone."""
    probe = script(tmp_path / "probe", f"flock --nonblock {tmp_path}/state/manifests/fetch.lock true && exit 9; exit 7")
    node = Node(tmp_path, fetch_command=[str(probe)])
    with pytest.raises(NotDone, match="ended with status 7"):
        await node.do(FetchModel)
