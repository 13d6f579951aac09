from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest

from policy.chat_template import WHOLE, ChatTemplate, check_template
from policy.template_work import MAX_CHARACTERS, BadTemplate, Budget, TooMuchWork
from tests.policy.templates import CHATML, LLAMA_3

TALK = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Why is <b> bold?"},
]
TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"städte": {"type": "string"}}}},
}


def test_a_conversation_is_rendered_with_the_opening_of_the_answer():
    assert ChatTemplate(CHATML, time.time).render(TALK) == (
        "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nWhy is <b> bold?<|im_end|>\n<|im_start|>assistant\n"
    )
    unopened = ChatTemplate(CHATML, time.time).render(TALK[1:], more={"add_generation_prompt": False})
    assert unopened == "<|im_start|>user\nWhy is <b> bold?<|im_end|>\n"


def test_a_template_that_knows_no_developers_reads_their_messages_as_the_systems():
    first = [{"role": "developer", "content": "Be short."}, TALK[1]]
    assert ChatTemplate(CHATML, time.time).render(first) == ChatTemplate(CHATML, time.time).render(TALK)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    developers: list[dict[str, Any]] = [{"role": "developer", "content": content} for content in (parts, None)]
    late = [*TALK, *developers]
    assert ChatTemplate(CHATML, time.time).render(late) == ChatTemplate(CHATML, time.time).render(
        [{"role": "system", "content": "Be short.\n\na\nb"}, TALK[1]]
    )


def test_a_template_that_knows_developers_is_given_their_messages():
    template = "{% for m in messages %}{{ 'D' if m.role == 'developer' else m.role }} {% endfor %}"
    talk = [TALK[1], {"role": "developer", "content": "Be short."}]
    assert ChatTemplate(template, time.time).render(talk) == "user D "


def test_tools_and_their_calls_are_rendered_as_hugging_face_writes_json():
    call = {"type": "function", "function": {"name": "weather", "arguments": {"städte": "Köln & <Bonn>"}}}
    talk: list[dict[str, Any]] = [
        TALK[1],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "sunny"},
    ]
    rendered = ChatTemplate(LLAMA_3, time.time).render(talk, [TOOL], {"bos_token": "<|begin_of_text|>"})
    tools = json.dumps(TOOL, indent=4, ensure_ascii=False)
    assert rendered == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\n" + tools + "<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhy is <b> bold?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
        '{"name": "weather", "parameters": {"städte": "Köln & <Bonn>"}}<|eot_id|>'
        '<|start_header_id|>ipython<|end_header_id|>\n\n"sunny"<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_the_same_tool_is_written_in_each_form_that_is_asked_for():
    ways: list[dict[str, Any]] = [{"indent": 4}, {"indent": 2}, {"indent": 2, "sort_keys": True}, {}, {"indent": 4}]
    asked = ", ".join(f"t | tojson({', '.join(f'{name}={value}' for name, value in way.items())})" for way in ways)
    template = ChatTemplate("{% set t = tools[0] %}{{ [" + asked + "] | join('#') }}", time.time)
    expected = "#".join(json.dumps(TOOL, ensure_ascii=False, **way) for way in ways)
    assert template.render(TALK, [TOOL]) == template.render(TALK, [TOOL]) == expected


def test_lines_of_statements_leave_no_space_behind():
    template = (
        "{% for m in messages %}\n    {% if m.role == 'user' %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n"
    )
    assert ChatTemplate(template, time.time).render(TALK) == "Why is <b> bold?\n"


def test_what_hugging_face_adds_to_jinja_is_there():
    template = "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% break %}{% endfor %}"
    assert ChatTemplate(template, time.time).render(TALK) == "system"
    assert ChatTemplate("{{ strftime_now('%d.%m.%Y') }}", lambda: 1_899_972_000).render(TALK) == "17.03.2030"
    assert ChatTemplate("{{ bos_token }}{{ tools is none }}", time.time).render(TALK) == "True"
    with pytest.raises(BadTemplate, match="roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}", time.time).render(TALK)


@pytest.mark.parametrize("name", ["m.content", "m['content']", "content", "m.content | list"])
def test_a_template_that_reads_parts_is_given_parts(name: str):
    loop = "{% for m in messages %}{% set content = m.content %}{% for part in NAME %}[{{ part.text }}]{% endfor %}"
    template = ChatTemplate(loop.replace("NAME", name) + "{% endfor %}", time.time)
    parts = [{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "two"}]
    assert template.render([{"role": "user", "content": "one"}]) == "[one]"
    assert template.render([{"role": "assistant", "content": None}]) == template.render([{"role": "assistant"}]) == ""
    assert template.render([{"role": "user", "content": parts}]) == "[one][][two]"


def test_a_template_that_reads_a_text_is_given_a_text():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert "assistant\n<" in ChatTemplate(CHATML, time.time).render([{"role": "assistant", "content": None}])
    assert "user\none\ntwo<" in ChatTemplate(CHATML, time.time).render([{"role": "user", "content": parts}])


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}",
        "{% include 'x' %}",
        "{{ messages[0].content.x.y }}",
        "{{ 1 / 0 }}",
        "{% for m in messages %}{{ m.update({}) }}{% endfor %}",
        "{{ messages.append(1) }}",
        "{{ lipsum(1000000000) }}",
    ],
)
def test_what_cannot_render_a_plain_conversation_is_refused(template: str):
    with pytest.raises(BadTemplate):
        check_template(template, time.time)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) if i < 0 %}{% endfor %}{% for i in range(99999) %}{% for j in 'abc' %}{{ '' }}"
        "{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
        "{% set s = namespace(x='ab') %}{% for i in range(99) %}{% set s.x = s.x ~ s.x %}{% endfor %}",
        "{% set s = namespace(x='ab') %}{% for i in range(99) %}{% set s.x = s.x + s.x %}{% endfor %}",
        "{% set s = namespace(x=[1]) %}{% for i in range(99) %}{% set s.x = s.x + s.x %}{% endfor %}",
        "{{ 'a' * 10 ** 10 }}",
        "{{ 10 ** (10 ** 10) }}",
        "{% set a = 'a' * 1000000 %}{% for i in range(9999) %}{{ a }}{% endfor %}",
    ],
)
def test_a_template_that_never_ends_is_ended(template: str):
    begun = time.monotonic()
    with pytest.raises(BadTemplate):
        check_template(template, time.time)
    assert time.monotonic() - begun < 10 * WHOLE.seconds


_LONG = "{% set a = 'a' * 1000000 %}"
# Short in memory, endless as a text.
_FOLDED = "{% set s = namespace(x=[1]) %}{% for i in range(60) %}{% set s.x = [s.x, s.x] %}{% endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a'.center(1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ 'a'.zfill(1000000000) }}",
        "{{ 5 .to_bytes(1000000000, 'big') }}",
        _LONG + "{{ a | replace('a', a) }}",
        _LONG + "{{ a.replace('', a) }}",
        _LONG + "{{ a.join(a) }}",
        _LONG + "{{ range(1000) | map('string') | join(a) }}",
        _LONG + "{{ ('{0}' * 1000).format(a) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '{:1000000000d}'.format(1) }}",
        "{{ '{:{}d}'.format(1, 1000000000) }}",
        "{{ 'a' | indent(1000000000, true) }}",
        "{{ {'a': 1} | tojson(indent=1000000000) }}",
        _LONG + "{{ [1, 2] | tojson(separators=(a, a)) }}",
        "{% set s = namespace(x=3) %}{% for i in range(60) %}{% set s.x = s.x * s.x %}{% endfor %}",
        "{{ (((10 ** 64) ** 64) ** 64) ** 64 }}",
        "{{ 1 | round(1000000000, 'ceil') }}",
        "{{ ([[0] * 1000] * 100000) | sum(start=[]) | length }}",
        "{{ ([0] * 32000000) | length }}",
        "{{ strftime_now('%Y' * 1000) }}",
        _FOLDED + "{{ s.x }}",
        _FOLDED + "{{ s }}",
        _FOLDED + "{{ {'a': s.x}.items() }}",
        _FOLDED + "{{ s.x | tojson }}",
        _FOLDED + "{{ s.x ~ 'a' }}",
        _FOLDED + "{{ '%s' % s.x }}",
        _FOLDED + "{{ 'a' | replace('a', s.x) }}",
    ],
)
def test_a_template_makes_nothing_that_is_too_long(template: str):
    tracemalloc.start()
    try:
        with pytest.raises(BadTemplate):
            ChatTemplate(template, time.time).render(TALK, budget=Budget(20_000, 60))
        assert tracemalloc.get_traced_memory()[1] < MAX_CHARACTERS
    finally:
        tracemalloc.stop()


def test_blocks_that_put_themselves_in_many_times_are_counted():
    blocks = [f"{{% block b{n} %}}{{{{ self.b{n + 1}() * 1 + self.b{n + 1}() }}}}{{% endblock %}}" for n in range(40)]
    with pytest.raises(BadTemplate):
        check_template("".join(reversed(blocks)) + "{% block b40 %}x{% endblock %}", time.time)


def test_a_loop_that_passes_everything_over_is_counted():
    template = "{% set r = range(99999) | list %}" + "{% for i in r if i < 0 %}{% endfor %}" * 200
    with pytest.raises(TooMuchWork, match="more than 200000 passes"):
        ChatTemplate(template, lambda: 0).render(TALK)


@pytest.mark.parametrize("template", ["a" * 70_000, "{% for a in [1] %}" * 25 + "{% endfor %}" * 25])
def test_a_template_that_cannot_be_compiled_is_refused(template: str):
    with pytest.raises(BadTemplate):
        ChatTemplate(template, time.time)


def test_what_templates_use_of_texts_and_lists_is_there():
    template = (
        "{% set a = 'x,y'.split(',') %}{{ a | join('-') }} {{ 'abc' | replace('b', 'BB') }} {{ '%02d|%s' % (7, 'q') }} "
        "{{ '{:.2f}'.format(1.5) }} {{ ['b', 'a'] | sort | first }} {{ 'a\nb' | indent(2) }} {{ [1, 2] | sum }} "
        "{{ {'k': [1]} | tojson }} {{ {'b': 1}.items() | list }} {{ messages | map(attribute='role') | unique | list }}"
    )
    assert ChatTemplate(template, time.time).render(TALK) == (
        "x-y aBBc 07|q 1.50 a a\n  b 3 {\"k\": [1]} [('b', 1)] ['system', 'user']"
    )


@pytest.mark.parametrize("method", ["replace('s', 'z')", "format(1)", "split('s')", "strip()"])
def test_methods_of_texts_are_there_in_loops_and_blocks_too(method: str):
    template = "{% for m in messages %}{{ m.role.NAME }}{% endfor %}{% block b %}{{ 'sys'.NAME }}{% endblock %}"
    apart = "".join(f"{{{{ '{role}'.NAME }}}}" for role in (*(message["role"] for message in TALK), "sys"))
    inside, outside = (ChatTemplate(each.replace("NAME", method), time.time) for each in (template, apart))
    assert inside.render(TALK) == outside.render(TALK)


def test_a_rendering_is_held_to_its_budget():
    slow = ChatTemplate("{% set r = range(99999) | list %}{% for i in r %}{{ r | sum }}{% endfor %}", time.time)
    with pytest.raises(TooMuchWork, match=r"longer than 0\.05 s"):
        slow.render(TALK, budget=Budget(10**12, 0.05))
    with pytest.raises(TooMuchWork, match="more than 5 passes"):
        slow.render(TALK, budget=Budget(5, 1))
    assert ChatTemplate(CHATML, time.time).render(TALK, budget=Budget(2, 1))


def test_one_template_renders_many_conversations_at_once():
    template = ChatTemplate(CHATML, time.time)
    assert template.render(TALK) == template.render(TALK)
    assert template.render(TALK) != template.render(TALK[1:])
