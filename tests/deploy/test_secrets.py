"""deploy/docker/make-secrets: what it makes can be used, and is made once."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

from controlplane import settings_rows as rows
from tests.deploy.compose import ROOT, read


def made_in(folder: Path) -> dict[str, str]:
    """What each secret is after a run."""
    subprocess.run(["sh", folder / "make-secrets"], check=True)
    return {file.name: file.read_text() for file in (folder / "secrets").iterdir()}


def test_each_secret_of_the_compose_file_is_made_once(tmp_path):
    shutil.copy(ROOT / "deploy/docker/make-secrets", tmp_path)
    made = made_in(tmp_path)
    assert set(made) == set(read()["secrets"])
    random = {name: text for name, text in made.items() if not name.endswith("_join_token")}
    assert len(set(random.values())) == len(random)
    assert made_in(tmp_path) == made
    assert rows.SECRET_KEY.read({"HEADWORKS_SECRET_KEY": made["secret_key"]})
    assert rows.FIELD_KEY.read({"HEADWORKS_FIELD_KEY": made["field_key"]})


def test_only_their_owner_reaches_them(tmp_path):
    shutil.copy(ROOT / "deploy/docker/make-secrets", tmp_path)
    made_in(tmp_path)
    folder = tmp_path / "secrets"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    # Mounted one by one into a container, whose user is another one.
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o644}


def test_they_stay_out_of_the_repository():
    secrets = [secret["file"] for secret in read()["secrets"].values()]
    ignored = subprocess.run(["git", "check-ignore", *secrets], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ignored.stdout.split() == secrets
