"""docs/rest.md: its commands, typed one after the other."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.controlplane.configs.live import live_site
from tests.services import missing_program

PAGE = Path(__file__).parents[3] / "docs" / "rest.md"


@pytest.mark.skipif(bool(missing_program("curl", "jq")), reason=str(missing_program("curl", "jq")))
def test_its_commands_work(tmp_path: Path) -> None:
    commands = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL))
    with live_site(tmp_path) as live:
        environment = {**os.environ, "HEADWORKS": live.address, "TOKEN": live.rest.token}
        # The last example goes on with a file that an earlier export left.
        first = 'api "$HEADWORKS/api/v1/audit/export" > audit.jsonl\n'
        script = f"set -euo pipefail\n{commands.replace('LAST=', first + 'LAST=')}"
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        tenant = live.rest.get("/tenants/acme")
        assert tenant["tpm_limit"] == 90_000
        assert len(live.rest.get("/tenants/acme/keys")["items"]) == 1
        exported = [json.loads(line)["id"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
        assert exported == [entry["id"] for entry in live.rest.get("/audit")["items"]][::-1]
        assert (tmp_path / "audit.csv").read_text().startswith("id,change_id,at,")
