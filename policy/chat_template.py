"""A model's chat template: messages → the text that its engine makes of them. Rendered as Hugging Face's own do.

Templates are untrusted text: they run in Jinja's sandbox, whose objects they can neither reach out of nor change.
"""

from __future__ import annotations

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


class BadTemplate(ValueError):
    """The text is no template, or cannot render a plain conversation."""


def check_template(text: str) -> None:
    """Raises: BadTemplate."""
    try:
        ImmutableSandboxedEnvironment().parse(text)
    except TemplateError as error:
        raise BadTemplate(str(error)) from None
