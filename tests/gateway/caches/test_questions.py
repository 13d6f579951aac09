"""Which questions may be answered with the answer to another one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.caches.questions import Question, fold, is_personal, is_time_bound, question_in
from policy.asks.body import fields_of

USER = {"role": "user", "content": "How is leave requested?"}
SYSTEM = {"role": "system", "content": "You answer for the staff."}


def asked(*messages: dict[str, Any], **fields: Any) -> Question | None:
    body = {"model": "m", "messages": messages or (USER,), **fields}
    return question_in(fields_of(msgspec.json.encode(body)), 200)


@pytest.mark.parametrize(
    "messages",
    [
        (USER,),
        (SYSTEM, USER),
        (SYSTEM, {"role": "developer", "content": "Be brief."}, USER),
        ({"role": "user", "content": [{"type": "text", "text": USER["content"]}]},),
    ],
)
def test_one_question_with_the_operators_words_before_it_is_a_question(messages: tuple[dict[str, Any], ...]) -> None:
    question = asked(*messages)
    assert question is not None
    assert question.text == USER["content"]


@pytest.mark.parametrize(
    "messages",
    [
        (USER, {"role": "assistant", "content": "By a form."}, USER),
        (USER, USER),
        (USER, SYSTEM),
        ({"role": "assistant", "content": "x"},),
        ({**USER, "name": "ayse"},),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},),
        ({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]},),
        ({"role": "user", "content": [{"type": "image_url", "text": "x"}]},),
        ({"role": "user", "content": None},),
        ({"role": "user", "content": "  "},),
        ({"role": "user"},),
        ({"role": "user", "content": "x" * 201},),
        ({"role": "tool", "tool_call_id": "1", "content": "x"}, USER),
        (SYSTEM, SYSTEM, SYSTEM, USER),
    ],
)
def test_what_is_more_than_one_question_is_none(messages: tuple[dict[str, Any], ...]) -> None:
    assert asked(*messages) is None


@pytest.mark.parametrize(
    "fields", [{"tools": [{"type": "function"}]}, {"functions": [{}]}, {"user": "ayse"}, {"safety_identifier": "x"}]
)
def test_who_asks_and_tools_bar_a_question(fields: dict[str, Any]) -> None:
    assert asked(**fields) is None


def test_fields_that_say_nothing_bar_nothing() -> None:
    assert asked(tools=[], user=None) is not None


@pytest.mark.parametrize(
    "text",
    [
        "What is my balance?",
        "MY invoice is wrong",
        "When do I get mine?",
        "I am ill, what must be done?",
        "Where is our contract?",
        "I’m moving, whom do I tell?",
        "Benim iznim kaç gün?",
        "BENİM maaşım",
        "ADIM neden yanlış?",
        "Write to ayse.yilmaz@example.com",
        "What does @ayse do?",
        "Is TR33 0006 1005 1978 6457 8413 26 right?",
        "Who has +90 (532) 123-4567?",
        "Where is order 48213?",
        "What is in ticket 3f2b9c1d0a77?",
        "What does Ayşe Yılmaz do?",
        "Kürşat Öztürk hangi birimde?",
        "What did Mr Smith say?",
        "Sayın müdür nerede?",
    ],
)
def test_what_looks_like_somebodys_own_is_personal(text: str) -> None:
    assert is_personal(text)


@pytest.mark.parametrize(
    "text",
    [
        "How is leave requested?",
        "How do I connect to the VPN?",
        "İzin nasıl talep edilir?",
        "Fatura kesme adımları neler?",
        "Can you tell me what HTTP 404 means?",
        "What changed in version 3.11?",
        "Is the office in Istanbul open on Monday?",
    ],
)
def test_a_question_that_anybody_may_ask_is_not(text: str) -> None:
    assert not is_personal(text)


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(["my", "MY", "Mine", "benim", "BENİM"]))
def test_words_of_oneself_are_found_wherever_they_stand(before: str, after: str, word: str) -> None:
    assert is_personal(f"{before} {word} {after}")


@given(st.text(max_size=60))
def test_no_text_breaks_the_rules(text: str) -> None:
    assert is_personal(text) in (True, False)
    assert "  " not in fold(text)


def test_the_same_words_are_found_again_whatever_their_case_and_spaces() -> None:
    first, again = asked(USER), asked({"role": "user", "content": " HOW  is leave\nrequested? "})
    assert first is not None
    assert again is not None
    assert first.digest == again.digest


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("What is the price?", True),
        ("PRICES of fruit", True),
        ("stok durumu nedir", True),
        ("What is a reprice?", False),
        ("Where is it?", False),
    ],
)
def test_time_bound_words_are_found_by_their_beginnings(text: str, bound: bool) -> None:
    question = asked({"role": "user", "content": text})
    assert question is not None
    assert is_time_bound(question, ["Price", "stok durumu"]) is bound
    assert not is_time_bound(question, [])
    assert not is_time_bound(question, [" "])
