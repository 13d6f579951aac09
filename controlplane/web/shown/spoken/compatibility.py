"""Why engines may not serve side by side, and the reasons of the rules that come with the program."""

from __future__ import annotations

from django.utils.translation import gettext_noop

FORMS = (
    # Why engines may not serve side by side.
    gettext_noop("pool '%(pool)s': %(said)s"),
    gettext_noop("its engines differ in %(fact)s: %(values)s"),
    gettext_noop("engine '%(engine)s' has %(values)s, which never go together; %(reason)s"),
    gettext_noop("engine '%(engine)s' has %(fact)s %(value)s; %(condition)s is needed; %(reason)s"),
    gettext_noop("%(said)s, its model %(wanted)s; %(reason)s"),
    gettext_noop("engine '%(engine)s' has %(fact)s %(value)s"),
    gettext_noop("%(fact)s of %(names)s is not known"),
    # The reasons of the rules that come with the program.
    gettext_noop("engines of several kinds answer the same request differently"),
    gettext_noop("two versions differ in defaults, in API fields and in what they answer"),
    gettext_noop("two versions of the backend differ in defaults, in API fields and in what they answer"),
    gettext_noop("a prompt must be the same tokens, whichever engine gets it"),
    gettext_noop("a conversation must be the same prompt, whichever engine gets it"),
    gettext_noop("a prompt that fits one engine must fit the others"),
    gettext_noop("gateways measure prompts by the files of the model"),
    gettext_noop("gateways let prompts pass up to the model's max_context_tokens"),
    gettext_noop(
        "Triton up to 25.09 imports vllm.engine.metrics, which vLLM has no more since 0.11.2: the model does not load"
    ),
    gettext_noop("it takes response_format and does not hold to it"),
)
