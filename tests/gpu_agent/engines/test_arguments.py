from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.engines.arguments import HIDDEN, is_secret, merged, of_command_line, of_document, without_secrets
from wire.messages import EngineReport

# No letters of which a hidden value or another argument is made.
SECRETS = st.text("XYZ0123456789", min_size=12, max_size=40)


def test_flags_are_named_as_programs_name_them():
    words = ["vllm", "serve", "./llama", "--max-num-seqs", "64", "--served-model-name", "a", "b", "--enable-lora"]
    assert of_command_line([*words, "--dtype=half", "--seed", "-1"]) == {
        "command": "vllm serve ./llama",
        "max_num_seqs": "64",
        "served_model_name": "a b",
        "enable_lora": "true",
        "dtype": "half",
        "seed": "-1",
    }


def test_short_flags_and_empty_values_are_flags_too():
    assert of_command_line(["llama-server", "-c", "8192", "-np", "4", "--alias="]) == {
        "command": "llama-server",
        "c": "8192",
        "np": "4",
        "alias": "",
    }


def test_of_a_flag_that_stands_there_twice_the_last_holds():
    assert of_command_line(["vllm", "--port", "1", "--port", "2"])["port"] == "2"


def test_pythons_own_flags_are_no_arguments_of_the_engine():
    words = ["/opt/v/bin/python3.12", "-u", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"]
    assert of_command_line(words) == {"command": " ".join(words[:4]), "model": "m"}
    assert of_command_line(["python3", "-m"])["command"] == "python3 -m"
    assert of_command_line(["llama-server", "-m", "a.gguf"]) == {"command": "llama-server", "m": "a.gguf"}
    assert of_command_line(["python3", "serve.py", "-m", "a"]) == {"command": "python3 serve.py", "m": "a"}


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "apikey",
        "hf_token",
        "admin-api-key",
        "password",
        "db.password",
        "SSL_KEYFILE_PASSWORD",
        "client_secret",
        "aws_access_key_id",
        "AWS_SECRET_ACCESS_KEY",
        "authorization",
    ],
)
def test_a_name_says_that_its_value_is_secret(name):
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "tokenizer",
        "tokenizer_mode",
        "max_num_batched_tokens",
        "max_total_num_tokens",
        "kv_cache_dtype",
        "ssl_keyfile",
        "author",
        "model",
    ],
)
def test_a_name_that_only_looks_so_is_no_secret(name):
    assert not is_secret(name)


@given(
    SECRETS,
    st.sampled_from(
        [
            ["--api-key", "{}"],
            ["--api-key={}"],
            ["--api-key", "-{}"],
            ["--api-key", "first", "{}"],
            ["--hf-token", "{}"],
            ["--model", "https://user:{}@models.example/llama"],
            ["--override", '{{"api_key": "{}", "size": 3}}'],
            ["--env", "HF_TOKEN={}"],
            ["--header", "Authorization: Bearer {}"],
            ["--header", "bearer {}"],
            ["--header", "Authorization: Basic {}"],
            ["--pass", "hf_{}"],
            ["sk-{}"],
            ["https://{}@models.example/llama"],
        ]
    ),
)
def test_no_secret_is_shown(secret, words):
    shown = of_command_line(["vllm", "serve", *(word.format(secret) for word in words), "--seed", "1"])
    assert secret not in str(shown)
    assert HIDDEN in str(shown)
    assert shown["seed"] == "1"


def test_a_switch_whose_name_looks_secret_is_shown():
    assert of_command_line(["vllm", "--return-token-ids"])["return_token_ids"] == "true"


def test_of_a_document_plain_values_are_taken_and_those_of_named_sections():
    document = {
        "model_path": "llama",
        "api_key": "abc",
        "enable_metrics": True,
        "tp_size": 2,
        "chunked": None,
        "internal_states": [{"x": 1}],
        "scheduler_config": {"max_num_seqs": 64, "nested": {"y": 1}},
        "other": {"z": 1},
    }
    assert of_document(document, ["scheduler_config", "absent"]) == {
        "model_path": "llama",
        "api_key": HIDDEN,
        "enable_metrics": "true",
        "tp_size": "2",
        "scheduler_config.max_num_seqs": "64",
    }


def test_of_two_sources_the_first_holds():
    assert merged({"seed": "1"}, {"seed": "0", "dtype": "half"}) == {"seed": "1", "dtype": "half"}


@given(st.lists(st.text(max_size=300), max_size=20), st.dictionaries(st.text(max_size=300), st.text(max_size=300)))
def test_whatever_a_process_or_page_says_can_be_reported(words, document):
    found = merged(of_command_line(words), of_document(document))
    report = EngineReport("e1", "up", arguments=found)
    assert msgspec.json.decode(msgspec.json.encode(report), type=EngineReport) == report


def test_more_than_a_report_takes_is_left_out():
    words = [f"--flag-{place}" for place in range(500)]
    assert len(of_command_line(words)) == 200
    assert len(merged(of_command_line(words), {"one": "more"})) == 200


@pytest.mark.parametrize("word", ["a" * 4000, "a-" * 2000, "a=" * 2000, "//" * 2000, "a." * 1999 + "=b", "hf_" * 1300])
def test_a_word_as_long_as_one_may_be_holds_nothing_up(word):
    begun_seconds = time.process_time()
    for _ in range(100):
        without_secrets(word[:1000])
        of_command_line([f"--x={word}"])
    assert time.process_time() - begun_seconds < 5
