from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.engine_pages.reading import page_of, read
from wire.engine_pages.scan import NotMetrics, OwnLine
from wire.engine_pages.served_model import of_served_model

TWO_MODELS = b"".join(
    b'vllm:num_requests_running{engine="0",model_name="%b"} %d\n' % (model, running)
    for model, running in ((b"llama", 3), (b"qwen", 5))
)


@pytest.mark.parametrize(("served_model", "running"), [("llama", 3), ("qwen", 5)])
def test_of_a_page_of_several_models_an_engine_takes_the_lines_of_its_own(served_model, running):
    assert read(TWO_MODELS, served_model=served_model) == {"requests_running": running}


@pytest.mark.parametrize("served_model", ["", "gemma"])
def test_a_page_of_several_models_none_of_which_it_serves_is_refused_by_name(served_model):
    with pytest.raises(NotMetrics, match=r"^other_models: the page is of models llama, qwen; the engine serves "):
        read(TWO_MODELS, served_model=served_model)


@pytest.mark.parametrize("served_model", ["", "the-name-that-clients-use"])
def test_a_page_of_one_model_is_the_engines_whatever_it_calls_it(served_model):
    assert read(page_of("vllm-0.32.0"), served_model=served_model)["prompt_tokens_total"] == 54


def test_lines_of_no_model_are_everybodys():
    page = TWO_MODELS + b"vllm:num_preemptions_total 7\n"
    assert read(page, served_model="qwen") == {"requests_running": 5, "preemptions_total": 7}


def test_a_label_that_ends_as_the_models_does_is_another():
    page = b'nv_inference_request_success{base_model="a",model="b"} 1\n'
    page += b'nv_inference_request_success{base_model="a",model="a"} 2\n'
    assert read(page, "triton", served_model="b")["requests_finished_total[other]"] == 1


def test_triton_and_vllm_inside_it_each_name_the_model_in_their_way():
    page = page_of("triton") + b'vllm:num_requests_running{engine="0",model_name="/models/llama"} 4\n'
    found = read(page, "triton", served_model="llama")
    assert (found["requests_running"], found["requests_waiting"]) == (4, 6)


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1), st.sampled_from(["a", "b", "c"]))
def test_what_is_taken_is_all_of_one_model_or_all_there_is(models, served_model):
    lines = [OwnLine("x", b'model="%b"' % model.encode(), place) for place, model in enumerate(models)]
    if len(set(models)) == 1:
        assert of_served_model(lines, served_model) == lines
    elif served_model in models:
        taken = of_served_model(lines, served_model)
        assert taken == [line for line, model in zip(lines, models, strict=True) if model == served_model]
