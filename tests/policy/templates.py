"""Chat templates and a tokenizer for tests: small ones of the kinds that models come with."""

from __future__ import annotations

from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

LLAMA_3 = """\
{{- bos_token }}
{%- if tools is not none %}
    {{- "<|start_header_id|>system<|end_header_id|>\\n\\nEnvironment: ipython\\n" }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
    {%- endfor %}
    {{- "<|eot_id|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- elif message.role == "tool" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {{- message.content | tojson }}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim }}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

_CORPUS = """\
A town writes down how much rain fell, hour by hour, and what it costs. The rain of June cost less than the rain of May.
{"name": "weather", "parameters": {"city": "Köln"}} assistant user system tool ipython header
"""


def byte_level(*specials: str) -> Tokenizer:
    """A tokenizer as of GPT-2, Llama 3 and Qwen: byte-level BPE, special tokens by name."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return _trained(tokenizer, specials, sorted(pre_tokenizers.ByteLevel.alphabet()))


def metaspace(*specials: str) -> Tokenizer:
    """A tokenizer as of Llama 2 and Mistral: words begin with ▁, and so does the first of a text."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return _trained(tokenizer, ("<unk>", *specials), [])


def _trained(tokenizer: Tokenizer, specials: tuple[str, ...], alphabet: list[str]) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=list(specials), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS.splitlines(keepends=True), trainer)
    return tokenizer


def with_ends(tokenizer: Tokenizer, bos: str, eos: str = "") -> Tokenizer:
    """Adds these to every text that it encodes, as the files of Llama and of embedding models say."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*filter(None, (bos, "$A", eos))],
        pair=[*filter(None, (bos, "$A", eos, "$B:1", eos))],
        special_tokens=[(each, tokenizer.token_to_id(each)) for each in (bos, eos) if each],
    )
    return tokenizer
