from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from policy.chat_template import ChatTemplate
from simulator.tokenizer import (
    MESSAGE_START,
    VOCABULARY_SIZE,
    Words,
    build_tokenizer,
    chat_prompt,
    main,
    train_tokenizer,
)

TOKENIZER = train_tokenizer()


def test_the_same_corpus_gives_the_same_file(tmp_path: Path) -> None:
    build_tokenizer(tmp_path / "one.json")
    build_tokenizer(tmp_path / "new" / "two.json")
    one, two = (tmp_path / "one.json").read_bytes(), (tmp_path / "new" / "two.json").read_bytes()
    assert one == two
    assert Tokenizer.from_str(one.decode()).get_vocab_size() <= VOCABULARY_SIZE


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_encoding_and_decoding(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


@given(st.integers(0, 2**32), st.integers(1, 200))
def test_words_make_a_text_of_exactly_so_many_tokens(seed: int, tokens: int) -> None:
    words = Words(TOKENIZER)
    ids = words.draw(random.Random(seed), tokens)
    assert TOKENIZER.encode(words.text(ids)).ids == ids
    assert len(ids) == tokens


def test_a_chat_is_its_messages_and_the_opening_of_the_answer() -> None:
    text = chat_prompt([("system", "Be brief."), ("user", "Hello")])
    tokens = TOKENIZER.encode(text).tokens
    assert tokens.count(MESSAGE_START) == 3
    assert text.endswith("assistant\n")


def test_the_chat_template_that_is_written_makes_the_same_of_messages(tmp_path: Path) -> None:
    tokenizer, template = tmp_path / "tokenizer.json", tmp_path / "chat_template.jinja"
    assert main([str(tokenizer), "--chat-template", str(template)]) == 0
    turns = [("system", "Be brief."), ("user", "Hello\n"), ("assistant", "")]
    messages = [{"role": role, "content": text or None} for role, text in turns]
    assert ChatTemplate(template.read_text(), time.time).render(messages) == chat_prompt(turns)


def test_a_tokenizer_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="no token of a space and letters"):
        Words(Tokenizer(models.BPE(vocab={"a": 0}, merges=[])))
