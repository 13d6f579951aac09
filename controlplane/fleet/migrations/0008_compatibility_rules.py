"""The rules that a new site begins with; it changes and deletes them as it likes."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

_RULES = (
    (
        "mixed-kinds",
        {"every": ["kind"]},
        "engines of several kinds answer the same request differently",
        False,
    ),
    (
        "mixed-versions",
        {"every": ["version"]},
        "two versions differ in defaults, in API fields and in what they answer",
        True,
    ),
    (
        "mixed-backends",
        {"every": ["vllm"], "where": {"kind": "triton"}},
        "two versions of the backend differ in defaults, in API fields and in what they answer",
        True,
    ),
    (
        "mixed-tokenizers",
        {"every": ["tokenizer"]},
        "a prompt must be the same tokens, whichever engine gets it",
        True,
    ),
    (
        "mixed-chat-templates",
        {"every": ["chat_template"]},
        "a conversation must be the same prompt, whichever engine gets it",
        True,
    ),
    (
        "mixed-lengths",
        {"every": ["max_length"]},
        "a prompt that fits one engine must fit the others",
        True,
    ),
    (
        "tokenizer-as-model",
        {"as_model": ["tokenizer", "chat_template"]},
        "gateways measure prompts by the files of the model",
        False,
    ),
    (
        "length-of-model",
        {"as_model": ["max_length"]},
        "gateways let prompts pass up to the model's max_context_tokens",
        False,
    ),
    (
        # Triton up to 25.09 (2.61.0) imports vllm.engine.metrics, which vLLM 0.11.2 has no more.
        "triton-25.09-vllm-0.11.2",
        {"never": {"kind": "triton", "frontend": "<2.62", "vllm": ">=0.11.2"}},
        "Triton up to 25.09 imports vllm.engine.metrics, which vLLM has no more since 0.11.2: the model does not load",
        True,
    ),
    (
        "response-format-dropped",
        {"never": {"probe_json_schema": "failed"}},
        "it takes response_format and does not hold to it",
        True,
    ),
)


def install(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    rule = apps.get_model("fleet", "CompatibilityRule")
    for name, form, reason, stops in _RULES:
        rule.objects.get_or_create(name=name, defaults={"rule": form, "reason": reason, "stops": stops})


class Migration(migrations.Migration):
    dependencies = [("fleet", "0007_lifecycle")]
    operations = [migrations.RunPython(install, migrations.RunPython.noop)]
