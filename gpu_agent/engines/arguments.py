"""What an engine was started with, as names and values, without secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_ARGUMENTS_LIMIT = 200
_CHARACTERS = 200
# What is looked at of a value, so that none takes long.
_READ_CHARACTERS = 1000
HIDDEN = "***"
_SECRET_WORDS = frozenset(
    ("auth", "authorization", "bearer", "credential", "credentials", "key", "keys", "passphrase", "passwd", "token")
)
_SECRET_NAME = re.compile(r"(?i)api_?key|access_?key|password|secret")
_WORDS = re.compile(r"[A-Za-z]+")
# In values: a URL's user and password, a name that says secret with its value, and tokens by their makers' prefixes.
_URL_USER = re.compile(r"(?<=//)[^/\s@]++(?=@)")
_NAMED_VALUE = re.compile(r"""(?<![\w.-])([\w.-]++)(["']?\s*[:=]\s*["']?)([^\s,"'}&]+)""")
_TOKEN = re.compile(r"\b(?:hf_|sk-|ghp_|glpat-|xox[abp]-|AKIA|eyJ)[\w.-]{8,}|(?i:\b(?:basic|bearer)\s+)\S+")
# An argument on one line, without a comment after it.
_ENTRY = re.compile(r"([A-Za-z][\w.-]*)[ \t]*:[ \t]+([^#]*?)(?:[ \t]+#.*)?")
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
_PYTHON_FLAG = re.compile(r"-[A-Za-z]+")
_FLAG = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)


def of_command_line(words: Sequence[str]) -> dict[str, str]:
    """The flags of a command line under the names that programs give them: `--max-num-seqs` is `max_num_seqs`.

    What stands before the first flag is `command`, with the module that Python runs. A flag without a value is `true`,
    one with several has them all; of one that stands there twice, the last holds.
    """
    own = _words_of_command(words)
    name, values = "command", [*words[:own]]
    found = {name: values}
    for word in words[own:]:
        # A secret may begin with a dash, too.
        owed = is_secret(name) and not values and not word.startswith("--")
        if not owed and (match := _FLAG.fullmatch(word)):
            name, values = match[1].replace("-", "_"), [] if match[2] is None else [match[2]]
            found[name] = values
        else:
            values.append(word)
    return _shown(
        (name, " ".join(values) if values else "true") for name, values in found.items() if values or name != "command"
    )


def _words_of_command(words: Sequence[str]) -> int:
    """How many words begin a command line like `python3 -u -m package.module`, whose flags are Python's: else none."""
    if not words or not _PYTHON.fullmatch(words[0]):
        return 0
    module = next((place for place, word in enumerate(words) if word == "-m"), None)
    if module is None or not all(_PYTHON_FLAG.fullmatch(word) for word in words[1:module]):
        return 0
    return module + 2


def of_config_file(text: str) -> dict[str, str]:
    """The plain entries of the flat YAML that vLLM's `--config` names."""
    found = (_ENTRY.fullmatch(line.rstrip()) for line in text.splitlines())
    return _shown((match[1].replace("-", "_"), match[2].strip("\"'")) for match in found if match)


def of_document(document: Mapping[str, Any], sections: Iterable[str] = ()) -> dict[str, str]:
    """The plain values of what an engine says of itself, and those of the named sections of it. No value, no entry."""
    found = dict(_plain(document))
    for section in sections:
        if isinstance(inner := document.get(section), Mapping):
            found |= {f"{section}.{name}": value for name, value in _plain(inner)}
    return _shown(found.items())


def merged(first: Mapping[str, str], rest: Mapping[str, str]) -> dict[str, str]:
    """Both, as many as may be reported; `first` where both have a name."""
    return dict(
        [*first.items(), *((name, value) for name, value in rest.items() if name not in first)][:_ARGUMENTS_LIMIT]
    )


def _plain(document: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in document.items():
        if isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, (str, int, float)) and value != "":
            yield name, str(value)


def _shown(arguments: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What may be reported: so many, so long, each on one line, secrets hidden."""
    shown: dict[str, str] = {}
    for name, value in arguments:
        if len(shown) == _ARGUMENTS_LIMIT:
            break
        hide = is_secret(name) and value not in ("true", "false")
        text = HIDDEN if hide else " ".join(without_secrets(value[:_READ_CHARACTERS]).split())
        shown[name[:_CHARACTERS]] = text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…"
    return shown


def is_secret(name: str) -> bool:
    """Whether a name says that its value is a secret: `hf_token` does, `max_tokens` and `tokenizer` do not."""
    words = {word.lower() for word in _WORDS.findall(name.replace("_", " "))}
    return bool(words & _SECRET_WORDS or _SECRET_NAME.search(name))


def without_secrets(text: str) -> str:
    """A text with what looks like a secret in it hidden."""
    hidden = _TOKEN.sub(HIDDEN, _URL_USER.sub(HIDDEN, text))
    return _NAMED_VALUE.sub(lambda found: found[1] + found[2] + (HIDDEN if is_secret(found[1]) else found[3]), hidden)
