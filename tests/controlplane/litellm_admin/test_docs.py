"""docs/litellm-scripts.md names every call and field."""

from __future__ import annotations

import re
from pathlib import Path

from controlplane.litellm_admin import bodies, unheld, urls

PAGE = (Path(__file__).parents[3] / "docs/litellm-scripts.md").read_text()
NAMED = set(re.findall(r"`([^`\n]+)`", PAGE))


def test_the_page_names_every_field_and_no_other_as_refused():
    taken = {*bodies.NewTeam.model_fields, *bodies.ChangedKey.model_fields, *bodies.SomeKeys.model_fields}
    refused = {*unheld.OF_TEAMS, *unheld.OF_NEW_KEYS}
    assert taken | refused <= NAMED
    table = PAGE.partition("why it is refused")[2].partition("\n\n")[0]
    names = {name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    assert names == refused


def test_the_page_names_every_call():
    calls = {str(pattern.pattern) for pattern in urls.urlpatterns} - {""}
    assert {f"/{path}" for path in calls} == {
        word.partition(" ")[2] for word in NAMED if re.match("(GET|POST) /[kt]", word)
    }
