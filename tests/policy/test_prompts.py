from __future__ import annotations

import json
import time
from typing import Any

from policy.asks import Ask, Endpoint, PromptTokens
from policy.chat_template import ChatTemplate
from policy.model_tokenizer import ModelTokenizer
from policy.prompts import PromptReader
from tests.policy.templates import CHATML, LLAMA_3, byte_level, with_ends

CHAT_MARKS = ("<|im_start|>", "<|im_end|>")
TALK = [{"role": "user", "content": "How much rain fell in May?"}, {"role": "assistant", "content": "More."}]


def size(reader: PromptReader, endpoint: Endpoint, **fields: Any) -> tuple[PromptTokens, str]:
    ask = Ask(endpoint, json.dumps({"model": "m", **fields}).encode())
    prompt = reader.read(ask)
    return reader.tokens(ask, prompt, reader.tokenizer.counts(prompt.texts), 4), prompt.source


def test_a_chat_is_counted_as_its_template_renders_it():
    inner = byte_level(*CHAT_MARKS)
    rendered = "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in TALK)
    tokens = len(inner.encode(f"{rendered}<|im_start|>assistant\n", add_special_tokens=False))
    reader = PromptReader(ModelTokenizer(inner), ChatTemplate(CHATML, time.time))
    assert size(reader, "chat", messages=TALK) == ((tokens, tokens), "template")


def test_every_api_with_messages_is_counted_by_the_template():
    marks = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    inner = with_ends(byte_level(*marks), "<|begin_of_text|>")
    reader = PromptReader(ModelTokenizer(inner), ChatTemplate(LLAMA_3, time.time))
    chat = size(reader, "chat", messages=TALK[:1])
    # The template writes the beginning's token; none is added once more.
    text = "<|start_header_id|>user<|end_header_id|>\n\nHow much rain fell in May?<|eot_id|>"
    assert chat[0].total == len(inner.encode(f"{text}<|start_header_id|>assistant<|end_header_id|>\n\n"))
    assert size(reader, "responses", input="How much rain fell in May?") == chat
    assert size(reader, "messages", messages=TALK[:1], max_tokens=5) == chat
    tool = {"name": "weather", "parameters": {"type": "object"}}
    with_tool = size(reader, "chat", messages=TALK[:1], tools=[{"type": "function", "function": tool}])
    assert with_tool[0].total > chat[0].total
    assert size(reader, "responses", input=TALK[0]["content"], tools=[{"type": "function", **tool}]) == with_tool


def test_a_chat_without_a_template_is_its_texts_and_an_overhead_of_each_message():
    inner = byte_level(*CHAT_MARKS)
    texts = [text for each in TALK for text in each.values()]
    tokens = sum(len(inner.encode(text)) for text in texts) + 2 * 4
    assert size(PromptReader(ModelTokenizer(inner), None), "chat", messages=TALK) == ((tokens, tokens), "tokenizer")


def test_a_conversation_that_the_template_refuses_is_counted_without_it():
    refusing = ChatTemplate("{{ raise_exception('roles must alternate') }}", time.time)
    inner = ModelTokenizer(byte_level())
    assert size(PromptReader(inner, refusing), "chat", messages=TALK) == size(
        PromptReader(inner, None), "chat", messages=TALK
    )


def test_texts_without_messages_count_what_the_tokenizer_adds_to_each():
    inner = with_ends(byte_level("<s>", "</s>"), "<s>", "</s>")
    reader = PromptReader(ModelTokenizer(inner), ChatTemplate(CHATML, time.time))
    one, two = len(inner.encode("rain")), len(inner.encode("rain in May"))
    assert size(reader, "completions", prompt="rain") == ((one, one), "tokenizer")
    assert size(reader, "embeddings", input=["rain", "rain in May"]) == ((one + two, two), "tokenizer")
    assert size(reader, "completions", prompt=[1, 2, 3]) == ((3, 3), "tokenizer")


def test_documents_count_with_their_query_as_the_pairs_that_an_engine_reads():
    inner = with_ends(byte_level("<s>", "</s>"), "<s>", "</s>")
    pairs = [len(inner.encode("rain", document)) for document in ("in May", "in June and July")]
    reader = PromptReader(ModelTokenizer(inner), None)
    found, _ = size(reader, "rerank", query="rain", documents=["in May", "in June and July"])
    assert found == (sum(pairs), max(pairs))
