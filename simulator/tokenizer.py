"""The tokenizer of simulated models: a small byte-level BPE, trained on the text in `simulator.corpus`.

`python -m simulator.tokenizer OUT` writes it as a Hugging Face tokenizer.json, and `--chat-template FILE` the Jinja
template of their chats. The same corpus gives the same bytes.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from simulator.corpus import CORPUS

VOCABULARY_SIZE = 2000
MESSAGE_START, MESSAGE_END, TEXT_END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
# What `chat_prompt` makes of messages, for who has to make the same of them.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    f"{{{{ '{MESSAGE_START}' + message.role + '\n' + (message.content or '') + '{MESSAGE_END}\n' }}}}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{{{{ '{MESSAGE_START}assistant\n' }}}}{{% endif %}}"
)


def train_tokenizer() -> Tokenizer:
    """Train on the built-in corpus; under a second."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[TEXT_END, MESSAGE_START, MESSAGE_END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
    return tokenizer


def build_tokenizer(path: Path) -> None:
    """Write the trained tokenizer to `path` as tokenizer.json."""
    path.parent.mkdir(parents=True, exist_ok=True)
    train_tokenizer().save(str(path))


def chat_prompt(messages: Sequence[tuple[str, str]]) -> str:
    """The chat template (ChatML): (role, text) pairs and the opening of the assistant's turn, as text to tokenize."""
    turns = "".join(f"{MESSAGE_START}{role}\n{text}{MESSAGE_END}\n" for role, text in messages)
    return f"{turns}{MESSAGE_START}assistant\n"


class Words:
    """Tokens that read as text on their own, to make prompts and answers of an exact number of tokens.

    Raises: ValueError when the tokenizer has no such token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        special = set(tokenizer.get_added_tokens_decoder())
        plain = (token for token in range(tokenizer.get_vocab_size()) if token not in special)
        texts = {token: tokenizer.decode([token]) for token in plain}
        self.texts = {token: text for token, text in texts.items() if text.startswith(" ") and text[1:].isalpha()}
        if not self.texts:
            raise ValueError("the tokenizer has no token of a space and letters, so no text can be made of it")
        self._ids = list(self.texts)

    def draw(self, rng: random.Random, tokens: int) -> list[int]:
        """`tokens` token ids, all of them keys of `texts`."""
        return rng.choices(self._ids, k=tokens)

    def text(self, ids: Sequence[int]) -> str:
        return "".join(self.texts[token] for token in ids)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulator.tokenizer", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="the file to write")
    parser.add_argument("--chat-template", type=Path, metavar="FILE", help="where to write the chat template, too")
    options = parser.parse_args(arguments)
    build_tokenizer(options.out)
    if options.chat_template is not None:
        options.chat_template.write_text(CHAT_TEMPLATE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
