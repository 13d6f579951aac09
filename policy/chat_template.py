"""A model's chat template: messages → the text that its engine makes of them. Rendered as Hugging Face's own do.

A template is a file that somebody uploads. It runs in Jinja's sandbox, whose objects it can neither reach out of nor
change, for a bounded number of steps, time and text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes

from policy.template_sandbox import WORK, Sandbox
from policy.template_work import MAX_CHARACTERS, BadTemplate, Budget, Clock, Work

_DEVELOPER = "developer"

# Those of models have up to 30,000. Jinja takes some seconds to compile as many as these, at worst.
MAX_TEMPLATE_CHARACTERS = 64 * 1024
_MAX_TIME_FORM = 256
# A chat of 10,000 messages takes some 30,000 steps.
WHOLE = Budget(200_000, 1.0)
# A plain conversation takes a few dozen.
_OF_CHECK = Budget(10_000, 1.0)


class ChatTemplate:
    """A compiled template. `render` may run in any thread."""

    def __init__(self, text: str, clock: Clock) -> None:
        """Raises: BadTemplate."""
        self.text, self._clock = text, clock
        if len(text) > MAX_TEMPLATE_CHARACTERS:
            raise BadTemplate(f"it has more than {MAX_TEMPLATE_CHARACTERS} characters")
        try:
            self._takes_parts = _iterates_content(_SANDBOX.parse(text))
            self._knows_developers = f'"{_DEVELOPER}"' in text or f"'{_DEVELOPER}'" in text
            self._template = _SANDBOX.from_string(text)
        except (TemplateError, RecursionError, SyntaxError) as error:
            # Of Python, where loops stand too deep in each other.
            raise BadTemplate(str(error) or type(error).__name__) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        more: Mapping[str, Any] | None = None,
        budget: Budget = WHOLE,
    ) -> str:
        """The prompt of a conversation, the opening of the assistant's turn included.

        `more`: further variables, such as the special tokens' texts. Raises: TooMuchWork, and BadTemplate where the
        template itself refuses such a conversation, too.
        """
        variables: dict[str, Any] = {"add_generation_prompt": True, **(more or {}), "tools": tools}
        shaped = [self._shaped(message) for message in messages]
        variables["messages"] = shaped if self._knows_developers else _without_developers(shaped)
        variables["strftime_now"] = self._strftime_now
        variables[WORK] = Work(budget, self._clock, tools or ())
        parts: list[str] = []
        characters = 0
        try:
            for part in self._template.generate(variables):
                parts.append(part)
                characters += len(part)
                if characters > MAX_CHARACTERS:
                    raise BadTemplate(f"it makes a text of more than {MAX_CHARACTERS} characters")
        except BadTemplate:
            raise
        except Exception as error:
            # Whatever a template does wrong, Python's own errors included.
            raise BadTemplate(str(error) or type(error).__name__) from None
        return "".join(parts)

    def _strftime_now(self, form: str) -> str:
        if len(form) > _MAX_TIME_FORM:
            raise BadTemplate(f"it writes the time in more than {_MAX_TIME_FORM} characters")
        return datetime.fromtimestamp(self._clock()).strftime(form)

    def _shaped(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """The message with its content as this template reads it: a list of parts, or one text. As vLLM does it."""
        content = message.get("content")
        if content is None:
            return {**message, "content": [] if self._takes_parts else ""}
        if self._takes_parts and isinstance(content, str):
            return {**message, "content": [{"type": "text", "text": content}]}
        if not self._takes_parts and isinstance(content, list):
            return {**message, "content": _text_of(content)}
        return message


def _without_developers(messages: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Developers' messages as the system's, all of these as one in front. As vLLM does it."""
    if all(message.get("role") != _DEVELOPER for message in messages):
        return messages
    renamed = [{**each, "role": "system"} if each.get("role") == _DEVELOPER else each for each in messages]
    of_system = [message for message in renamed if message.get("role") == "system"]
    if of_system == renamed[:1]:
        return renamed
    texts = [_text_of(message["content"]) for message in of_system]
    merged = {"role": "system", "content": "\n\n".join(text for text in texts if text)}
    return [merged, *(message for message in renamed if message.get("role") != "system")]


def check_template(text: str, clock: Clock) -> None:
    """Render a plain conversation as gateways will. Raises: BadTemplate."""
    ChatTemplate(text, clock).render([{"role": "user", "content": "How long is this?"}], budget=_OF_CHECK)


def _iterates_content(tree: nodes.Template) -> bool:
    """Whether a template loops over a message's content, by that name or by one that it gave it."""
    names = {
        each.target.name
        for each in tree.find_all(nodes.Assign)
        if isinstance(each.target, nodes.Name) and _is_content(each.node)
    }
    return any(_is_content(loop.iter, names) for loop in tree.find_all(nodes.For))


def _is_content(node: nodes.Node | None, names: Collection[str] = ()) -> bool:
    if isinstance(node, nodes.Filter):
        return _is_content(node.node, names)
    if isinstance(node, nodes.Name):
        return node.name in names
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    return isinstance(node, nodes.Getattr) and node.attr == "content"


def _text_of(content: Any) -> str:
    return "\n".join(map(_text_of_part, content)) if isinstance(content, list) else str(content or "")


def _text_of_part(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


_SANDBOX = Sandbox()
