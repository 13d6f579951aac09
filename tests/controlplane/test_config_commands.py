"""`headworks config …`, as a person types it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from tests.controlplane.configs.live import Live, live_site
from tests.controlplane.test_cli import headworks

REASON = ("--reason", "because of a test")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("config")
    assert headworks("migrate", HEADWORKS_DATA_DIR=str(directory)).returncode == 0
    return directory


@pytest.fixture
def data_dir(prepared: Path) -> Path:
    """A control plane without any configuration."""
    emptied = config(prepared, "apply", "-", "--yes", "--allow-removals", *REASON, text=document(tenants={}))
    assert emptied.returncode == 0, emptied.stderr
    return prepared


def config(data_dir: Path, *words: str, text: str | None = None) -> CompletedProcess[str]:
    return headworks("config", *words, text=text, HEADWORKS_DATA_DIR=str(data_dir))


def document(**sections: object) -> str:
    return yaml.safe_dump({"format": "headworks/1", **sections})


def given(tmp_path: Path, text: str, name: str = "fleet.yaml") -> str:
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def test_what_is_exported_is_no_difference(data_dir: Path, tmp_path: Path) -> None:
    exported = config(data_dir, "export")
    assert exported.returncode == 0, exported.stderr
    assert yaml.safe_load(exported.stdout)["format"] == "headworks/1"
    same = config(data_dir, "diff", given(tmp_path, exported.stdout))
    assert (same.returncode, same.stdout, same.stderr) == (0, "", "")
    as_json = given(tmp_path, json.dumps(yaml.safe_load(exported.stdout)), "fleet.json")
    assert config(data_dir, "diff", as_json).returncode == 0


def test_apply_shows_the_diff_asks_and_applies(data_dir: Path, tmp_path: Path) -> None:
    file = given(tmp_path, document(tenants={"acme": {"tpm_limit": 5}}))
    diff = "--- /dev/null\n+++ tenants/acme\n@@ -0,0 +1,2 @@\n+acme:\n+  tpm_limit: 5\n"
    differs = config(data_dir, "diff", file)
    assert (differs.returncode, differs.stdout) == (1, diff)
    declined = config(data_dir, "apply", file, *REASON, text="n\n")
    assert (declined.returncode, declined.stdout) == (1, diff)
    assert "nothing was changed" in declined.stderr
    assert config(data_dir, "diff", file).returncode == 1
    applied = config(data_dir, "apply", file, *REASON, text="y\n")
    assert (applied.returncode, applied.stdout) == (0, diff)
    assert "done: change " in applied.stderr
    again = config(data_dir, "apply", file, *REASON, text="")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "nothing to change\n")


def test_half_a_document_removes_nothing_unless_that_is_said(data_dir: Path, tmp_path: Path) -> None:
    assert config(data_dir, "apply", "-", "--yes", *REASON, text=document(tenants={"acme": {}})).returncode == 0
    file = given(tmp_path, document(tenants={}))
    refused = config(data_dir, "apply", file, "--yes", *REASON)
    assert (refused.returncode, "add --allow-removals" in refused.stderr) == (1, True)
    assert "acme" in config(data_dir, "export").stdout
    done = config(data_dir, "apply", file, "--yes", "--allow-removals", *REASON)
    assert done.returncode == 0, done.stderr
    assert "acme" not in config(data_dir, "export").stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (document(tenants={"acme": {"tpm_limit": "many"}}), "/tenants/acme/tpm_limit: "),
        (document(tenants={f"t-{n}": {"x": 1} for n in range(9)}), "/tenants/t-8/x: no such field"),
        ("format: headworks/1\ntenants: {a: {}, a: {}}\n", "'a' twice in one map at line 2"),
        ("[", "no YAML"),
    ],
)
def test_what_is_refused_is_named_in_full(prepared: Path, tmp_path: Path, text: str, says: str) -> None:
    file = given(tmp_path, text)
    for words, status in ((("diff", file), 2), (("apply", file, "--yes", *REASON), 1)):
        refused = config(prepared, *words)
        assert (refused.returncode, refused.stdout) == (status, "")
        assert says in refused.stderr
        assert "Traceback" not in refused.stderr


def test_trouble_is_told_from_differences(prepared: Path, tmp_path: Path) -> None:
    absent = config(prepared, "diff", str(tmp_path / "absent.yaml"))
    assert (absent.returncode, "absent.yaml: No such file" in absent.stderr) == (2, True)
    no_database = config(tmp_path / "nowhere", "diff", given(tmp_path, document()))
    assert (no_database.returncode, "there is no database" in no_database.stderr) == (2, True)


def test_one_input_does_not_give_both_file_and_answer(prepared: Path) -> None:
    refused = config(prepared, "apply", "-", *REASON, text=document(tenants={"acme": {}}))
    assert (refused.returncode, "add --yes" in refused.stderr) == (1, True)


@pytest.mark.parametrize("words", [("rollback", "0"), ("rollback", "x"), ("export", "--revision", "-1")])
def test_a_number_that_is_none_is_a_usage_error(prepared: Path, words: tuple[str, ...]) -> None:
    refused = config(prepared, *words)
    assert (refused.returncode, "whole number" in refused.stderr) == (2, True)


@pytest.mark.timeout(120)
def test_it_waits_for_targets_and_goes_back(tmp_path: Path) -> None:
    with live_site(tmp_path / "site") as live:
        gateway = live.enrol("gateway", "gw-1")
        stream = gateway.stream()
        file = given(tmp_path, document(tenants={"acme": {"tpm_limit": 5}}))

        unacknowledged = run(live, "apply", file, "--yes", "--wait", "1", *REASON)
        assert unacknowledged.returncode == 1, unacknowledged.stderr
        assert "pending: gateway/gw-1" in unacknowledged.stderr

        def acknowledge() -> None:
            while stream.next(timeout_s=60) is not None:
                gateway.ack(stream.held)

        threading.Thread(target=acknowledge, daemon=True).start()
        changed = given(tmp_path, document(tenants={"acme": {"tpm_limit": 6}}))
        applied = run(live, "apply", changed, "--yes", "--wait", "30", *REASON)
        assert applied.returncode == 0, applied.stderr
        assert "1 of 1 targets run it" in applied.stderr
        before = live.revision() - 1
        shown = run(live, "export", "--revision", str(before))
        assert yaml.safe_load(shown.stdout)["tenants"] == {"acme": {"tpm_limit": 5}}
        back = run(live, "rollback", str(before), "--yes", "--wait", "30", *REASON)
        assert back.returncode == 0, back.stderr
        assert back.stdout.endswith("-  tpm_limit: 6\n+  tpm_limit: 5\n")
        assert stream.held.content["tenants"]["acme"]["tpm_limit"] == 5
        stream.close()


def run(live: Live, *words: str) -> CompletedProcess[str]:
    return headworks("config", *words, **live.environment)
