"""Rows that routes name."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace


@pytest.fixture
def pools(admin):
    """An administrator's REST, with two pools of one model, a tenant and a class."""
    admin.post("/models", {"name": "org/llama", "max_context_tokens": 8192})
    for pool in ("short", "long"):
        admin.post("/pools", {"name": pool, "model": "org/llama"})
    admin.post("/tenants", {"name": "acme"})
    assert admin.post("/priority-classes", {"name": "chat", "rank": 0}).status_code == 201
    return admin


@pytest.fixture
def word_tokenizer() -> bytes:
    """A tokenizer of one token a word."""
    tokenizer = Tokenizer(WordLevel({"word": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer.to_str().encode()
