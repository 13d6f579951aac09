"""What is counted of a request to know how long its prompt is: by its tokenizer, and its chat template if any."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from policy.asks import Ask, PromptTokens
from policy.chat_template import WHOLE, ChatTemplate
from policy.conversations import conversation
from policy.model_tokenizer import ModelTokenizer, cutter, pieces
from policy.template_work import BadTemplate, Budget, TooMuchWork

# From the surest to the least sure. `template`: exactly what an engine of the model reads.
Source = Literal["template", "tokenizer", "engine", "estimate"]


class Prompt(NamedTuple):
    """`texts` are counted each by itself. `source`: `template` where they are the rendered conversation."""

    texts: list[str]
    source: Source


class PromptReader:
    """Reads prompts for one tokenizer and the chat template that goes with it (None: there is none)."""

    def __init__(self, tokenizer: ModelTokenizer, template: ChatTemplate | None) -> None:
        self.tokenizer, self._template = tokenizer, template
        self._ends = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
        self._cut: re.Pattern[str] | None = None
        if template is not None:
            self._cut = cutter(tokenizer.special_in(template.text) | {tokenizer.bos, tokenizer.eos})

    def read(self, ask: Ask, budget: Budget = WHOLE) -> Prompt:
        """The texts to count. A conversation that the template refuses is read as one without a template would be.

        Raises: TooMuchWork where less than the whole budget is given and does not suffice.
        """
        talk = None if self._template is None else conversation(ask)
        if talk is None or self._template is None:
            return Prompt(ask.texts, "tokenizer")
        try:
            rendered = self._template.render(talk.messages, talk.tools, {**self._ends, **talk.more}, budget)
        except BadTemplate as error:
            if isinstance(error, TooMuchWork) and budget is not WHOLE:
                raise
            return Prompt(ask.texts, "tokenizer")
        return Prompt(pieces(rendered, self._cut), "template")

    def tokens(self, ask: Ask, prompt: Prompt, counts: Sequence[int], message_overhead: int) -> PromptTokens:
        """Of the tokens of each of the prompt's texts, in their order.

        `message_overhead`: what a template that is not known adds to each message.
        """
        if prompt.source == "template":
            total = sum(counts)
            return PromptTokens(total, total)
        if ask.messages:
            return ask.prompt_tokens(counts, message_overhead)
        if ask.endpoint == "rerank":
            query, *documents = counts
            return ask.prompt_tokens([query, *(each + self.tokenizer.added_to_pair for each in documents)], 0)
        return ask.prompt_tokens([each + self.tokenizer.added_tokens for each in counts], 0)
