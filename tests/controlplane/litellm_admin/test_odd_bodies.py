"""Whatever stands in a field, the answer is a refusal that names why, and no failure of ours."""

from __future__ import annotations

import pytest

from controlplane.litellm_admin import bodies, unheld
from tests.controlplane.litellm_admin.calls import Script

pytestmark = pytest.mark.django_db
ODD = [
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x" * 300,
    "\ud800",
    "\x00",
    "9" * 18,
    "-1",
    [],
    [None],
    ["\x00"],
    {},
    {"a": [1]},
]
KEY = {*bodies.ChangedKey.model_fields, *unheld.OF_NEW_KEYS}
TEAM = {*bodies.NewTeam.model_fields, *unheld.OF_TEAMS}
FIELDS = {
    "/key/generate": ({"team_id": "acme"}, KEY),
    "/key/update": ({"key": "1"}, KEY),
    "/key/block": ({}, {"key"}),
    "/key/delete": ({}, {"keys", "key_aliases"}),
    "/team/new": ({"team_id": "beta"}, TEAM),
    "/team/update": ({"team_id": "acme"}, TEAM),
    "/team/delete": ({}, {"team_ids"}),
}


@pytest.mark.parametrize("path", FIELDS)
def test_an_odd_value_never_fails_here(admin, path):
    script = Script(admin)
    script.post("/team/new", {"team_id": "acme"})
    script.post("/key/generate", {"team_id": "acme"})
    known, fields = FIELDS[path]
    for field in sorted(fields):
        for value in ODD:
            answer = script.post(path, {**known, field: value})
            assert answer.status_code in {200, 404, 409, 422}, (field, value, answer.content)
            assert answer.status_code == 200 or set(answer.json()) == {"error"}
