from __future__ import annotations

import pytest


@pytest.fixture
def entries(operator, admin):
    operator.post("/tenants?reason=one", {"name": "acme"})
    operator.patch("/tenants/acme?reason=two", {"weight": 2})
    admin.post("/tenants?reason=three", {"name": "globex"})


@pytest.mark.usefixtures("entries")
def test_entries_come_newest_first_in_pages(viewer):
    first = viewer.get("/audit?limit=2").json()
    second = viewer.get(f"/audit?limit=2&after={first['next']}").json()
    assert [item["reason"] for item in first["items"] + second["items"]] == ["three", "two", "one"]
    assert second["next"] is None


@pytest.mark.usefixtures("entries")
def test_entries_are_found_by_noun_key_and_actor(viewer):
    def reasons(query: str) -> list[str]:
        return [item["reason"] for item in viewer.get(f"/audit?{query}").json()["items"]]

    assert reasons("noun=tenant&key=acme") == ["two", "one"]
    actor = viewer.get("/audit?limit=1").json()["items"][0]["actor"]
    assert reasons(f"actor={actor}") == ["three"]
    assert reasons("noun=pool") == []


@pytest.mark.usefixtures("entries")
def test_an_entry_says_what_was_before_and_after(viewer):
    entry = viewer.get("/audit?key=acme&limit=1").json()["items"][0]
    assert (entry["before"]["weight"], entry["after"]["weight"]) == (1, 2)
    assert (entry["action"], entry["actor_kind"]) == ("update", "token")
    assert entry["at"].endswith("Z")


@pytest.mark.parametrize("query", ["noun=%00", "after=-1", "limit=0", f"key={'x' * 201}", f"after={2**64}"])
def test_a_bad_filter_is_refused(viewer, query):
    assert viewer.get(f"/audit?{query}").status_code == 422
