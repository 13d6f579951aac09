from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.model_tokenizer import ModelTokenizer, cutter, pieces
from tests.policy.templates import byte_level, metaspace, with_ends

MARKS = ("<|im_start|>", "<|im_end|>", "<|im_end|>x", "<s>", "</s>")
TOKENIZERS = {
    "byte level": ModelTokenizer(byte_level(*MARKS)),
    "metaspace": ModelTokenizer(metaspace(*MARKS)),
    "with ends": ModelTokenizer(with_ends(byte_level(*MARKS), "<s>", "</s>")),
}
TEXTS = st.lists(
    st.one_of(st.sampled_from(MARKS), st.sampled_from((" ", "rain of May", "\n", "<|im", "im_end|>x", "ö")), st.text())
)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(parts=TEXTS, cut_at=st.sets(st.sampled_from(MARKS)))
@settings(max_examples=200, deadline=None)
def test_the_pieces_of_a_text_have_its_tokens(name: str, parts: list[str], cut_at: set[str]):
    tokenizer, text = TOKENIZERS[name], "".join(parts)
    found = pieces(text, cutter(cut_at & tokenizer.special_in(text)))
    assert "".join(found) == text
    assert sum(tokenizer.counts(found)) == tokenizer.counts([text])[0]


def test_each_turn_is_a_piece():
    text = "<|im_start|>user\nrain<|im_end|>\n<|im_start|>assistant\n"
    cut = cutter(["<|im_start|>", "<|im_end|>"])
    assert pieces(text, cut) == ["<|im_start|>user\nrain", "<|im_end|>\n", "<|im_start|>assistant\n"]
    assert pieces(text, None) == [text]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_text_of_special_tokens_alone_is_cut_only_so_often(name: str):
    tokenizer, text = TOKENIZERS[name], "<|im_end|>rain" * 10_000
    found = pieces(text, cutter(["<|im_end|>"]))
    assert len(found) < 5_000
    assert ("".join(found), sum(tokenizer.counts(found))) == (text, tokenizer.counts([text])[0])


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_long_text_is_counted_in_parts(name: str):
    tokenizer, line = TOKENIZERS[name], " rain of May, again"
    of_ten = tokenizer.counts([line * 10])[0]
    of_one = of_ten - tokenizer.counts([line * 9])[0]
    times = 40_000
    (counted,) = tokenizer.counts([line * times])
    assert abs(counted - (of_ten + of_one * (times - 10))) <= 2 * len(line) * times // 131_072
    assert tokenizer.counts(["", line * times, line]) == [0, counted, *tokenizer.counts([line])]


def test_a_special_token_that_is_spelled_out_is_one_token():
    tokenizer = TOKENIZERS["byte level"]
    assert tokenizer.counts(["<|im_start|>", "<|im_start|><|im_end|>", ""]) == [1, 2, 0]


@pytest.mark.parametrize(
    ("ends", "found"),
    [(("<s>", "</s>"), (2, 3, "<s>", "</s>")), (("<|begin_of_text|>", ""), (1, 1, "<|begin_of_text|>", "<|eot_id|>"))],
)
def test_what_begins_and_ends_a_text_is_read_of_the_post_processor(ends: tuple[str, str], found: tuple[object, ...]):
    inner = with_ends(byte_level("<s>", "</s>" if ends[1] else "<|eot_id|>", "<|begin_of_text|>"), *ends)
    tokenizer = ModelTokenizer(inner)
    assert (tokenizer.added_tokens, tokenizer.added_to_pair, tokenizer.bos, tokenizer.eos) == found


def test_special_tokens_are_known_by_their_usual_names():
    tokenizer = ModelTokenizer(byte_level("<|endoftext|>", "<|im_end|>"))
    assert (tokenizer.bos, tokenizer.eos) == ("", "<|im_end|>")


def test_nothing_is_cut_off_or_filled_up():
    inner = byte_level("<pad>")
    inner.enable_truncation(2)
    inner.enable_padding(length=100)
    assert ModelTokenizer(inner).counts(["abcdefgh", ""]) == ModelTokenizer(byte_level("<pad>")).counts(
        ["abcdefgh", ""]
    )


def test_a_file_is_read():
    assert ModelTokenizer.read(byte_level("<s>").to_str().encode()).counts(["<s>"]) == [1]
    with pytest.raises(Exception, match="expected"):
        ModelTokenizer.read(b"no tokenizer")
