from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.adapters.plan import Plan, plan

names = st.sampled_from(["a", "b", "c"])
folders = st.dictionaries(names, st.sampled_from(["/x", "/y"]))


def test_what_lacks_is_loaded_and_what_is_there_left_alone():
    assert plan({"a": "/x", "b": "/y"}, {"b": "/y"}, {}) == Plan({"a": "/x"})


def test_only_what_was_loaded_here_is_unloaded():
    assert plan({}, {"a": "/x", "b": "/y"}, {"a": "/x"}) == Plan({}, ["a"])


def test_one_that_shall_come_from_elsewhere_is_loaded_anew_if_it_is_ours():
    assert plan({"a": "/y"}, {"a": "/x"}, {"a": "/x"}) == Plan({"a": "/y"}, ["a"])
    found = plan({"a": "/y"}, {"a": "/x"}, {})
    assert (found.load, found.unload) == ({}, [])
    assert found.problems == {"a": "somebody else loaded it from /x; unload it, or correct the pool"}


@given(folders, folders, folders)
def test_once_a_plan_is_done_there_is_nothing_more_to_do(desired, loaded, own):
    first = plan(desired, loaded, own)
    assert set(first.unload) <= own.keys() & loaded.keys()
    after = {name: folder for name, folder in loaded.items() if name not in first.unload} | first.load
    ours = {name: folder for name, folder in own.items() if name not in first.unload} | first.load
    ours = {name: folder for name, folder in ours.items() if name in after}
    second = plan(desired, after, ours)
    assert (second.load, second.unload) == ({}, [])
    assert desired.keys() - second.problems.keys() <= after.keys()
