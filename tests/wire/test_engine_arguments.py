from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.engine_arguments import differing, value_of, whole_of

SAME = [
    ("max-num-seqs", 256, {"max_num_seqs": "256"}),
    ("max-model-len", 8192, {"max_model_len": "8K"}),
    ("max-model-len", "25.6k", {"max_model_len": "25600"}),
    ("gpu-memory-utilization", "0.90", {"gpu_memory_utilization": "0.9"}),
    ("enable-lora", True, {"enable_lora": "true"}),
    ("enable-lora", True, {"lora_config.enable_lora": "True"}),
    ("enable-prefix-caching", False, {"no_enable_prefix_caching": "true"}),
    ("enable-prefix-caching", False, {"command": "vllm serve"}),
    ("tensor-parallel-size", 2, {"tp": "2"}),
    ("max-num-seqs", 64, {"scheduler_config.max_num_seqs": "64"}),
    ("max-num-seqs", 64, {"scheduler_config.max_num_seqs": "32", "max_num_seqs": "64"}),
    ("compilation-config", '{"level": 3, "a": 1}', {"compilation_config": '{"a":1,"level":3}'}),
    ("kv-cache-dtype", "fp8", {"kv_cache_dtype": "fp8"}),
]


@pytest.mark.parametrize(("name", "desired", "actual"), SAME)
def test_what_means_the_same_does_not_differ(name, desired, actual):
    assert differing({name: desired}, actual) == {}


@pytest.mark.parametrize(
    ("desired", "actual", "said"),
    [
        (256, {"max_num_seqs": "128"}, ("256", "128")),
        (256, {}, ("256", None)),
        (True, {"no_max_num_seqs": "true"}, ("true", "false")),
        (False, {"max_num_seqs": "true"}, ("false", "true")),
        ("8k", {"max_num_seqs": "8K"}, ("8k", "8K")),
        ("{", {"max_num_seqs": "{}"}, ("{", "{}")),
    ],
)
def test_both_values_are_told_as_they_were_given(desired, actual, said):
    assert differing({"max-num-seqs": desired}, actual) == {"max-num-seqs": said}


def test_what_is_not_desired_may_be_anything():
    assert differing({}, {"max_num_seqs": "1"}) == {}


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True).filter(lambda name: not name.startswith("no-")),
        st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
        max_size=5,
    )
)
def test_an_engine_that_was_started_as_desired_differs_in_nothing(desired):
    """Names that are short for others aside, which no pool is written with."""
    short = {"tp", "pp", "dp", "dcp", "q"}
    desired = {name: value for name, value in desired.items() if name not in short}
    reported = {name.replace("-", "_"): str(value) for name, value in desired.items()}
    assert differing(desired, reported) == {}


@pytest.mark.parametrize(
    ("actual", "value"),
    [
        ({"max_num_seqs": "256"}, 256),
        ({"max-num-seqs": "8K"}, 8192),
        # What stands on the command line goes before what the engine says of itself.
        ({"scheduler_config.max_num_seqs": "128", "max_num_seqs": "64"}, 64),
        ({"scheduler_config.max_num_seqs": "128"}, 128),
        ({}, None),
        *(({"max_num_seqs": text}, None) for text in ("", "many", "0", "-5", "1.5", "1e400", "NaN", "Infinity")),
    ],
)
def test_a_whole_number_is_read_however_it_is_written(actual, value):
    assert whole_of("max-num-seqs", actual) == value


def test_a_value_is_read_under_its_short_name_and_as_a_switch():
    assert whole_of("tensor-parallel-size", {"tp": "4"}) == 4
    assert value_of("enforce-eager", {"enforce_eager": "True"}) == "true"
    assert value_of("enable-lora", {"no_enable_lora": "true"}) == "false"
    assert value_of("enforce-eager", {}) is None
