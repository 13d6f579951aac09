from __future__ import annotations

import hashlib
import json

import pytest

from gpu_agent.engines.model_digests import model_digests, of_start


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_the_files_that_decide_a_prompt_are_known_by_their_digests(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    (tmp_path / "chat_template.jinja").write_bytes(b"{{ messages }}")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "another"}))
    assert model_digests(tmp_path) == {"tokenizer": sha256(b"{}"), "chat_template": sha256(b"{{ messages }}")}


def test_a_template_in_the_tokenizers_settings_is_the_same_as_a_file_of_its_own(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ ölçü }}"}))
    assert model_digests(tmp_path) == {"chat_template": sha256("{{ ölçü }}".encode())}


@pytest.mark.parametrize(
    "settings", [b"not JSON", b"[]", b"{}", b'{"chat_template": [{"name": "tools", "template": "x"}]}', b"\xff"]
)
def test_settings_without_one_template_have_none(tmp_path, settings):
    (tmp_path / "tokenizer_config.json").write_bytes(settings)
    assert model_digests(tmp_path) == {}


def test_a_file_larger_than_any_tokenizer_is_none(tmp_path):
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(64 * 2**20 + 1)
    assert model_digests(tmp_path) == {}


def test_a_model_of_one_file_tells_nothing(tmp_path):
    (tmp_path / "llama.gguf").write_bytes(b"GGUF")
    assert model_digests(tmp_path / "llama.gguf") == {}


def test_an_engine_with_a_template_of_its_own_does_not_use_the_models():
    digests = {"tokenizer": "a", "chat_template": "b"}
    assert of_start(digests, {"chat_template": "/etc/own.jinja"}) == {"tokenizer": "a"}
