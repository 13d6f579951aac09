"""Settings are rows: name, default, reason. Every process reads its own rows from the environment, here only.

`docs/settings.md` lists every row; a test compares the two.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from wire.files import read_bounded

T = TypeVar("T")
_SECRET_FILE_BYTES = 10_000
_URL_CREDENTIALS = re.compile(r"//[^/\s]*@")


class BadSetting(ValueError):
    """A setting's value cannot be used; the message says which one and what would be right."""


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One tunable. `parse` turns the environment's text into the value, raising ValueError with what is right.

    With `in_file`, NAME_FILE may name a file that holds the text, so that a secret stands in no environment.
    """

    name: str
    default: T
    reason: str
    parse: Callable[[str], T]
    secret: bool = False
    in_file: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the environment's variables that can give this row."""
        return (self.name, self._file_variable) if self.in_file else (self.name,)

    @property
    def _file_variable(self) -> str:
        return f"{self.name}_FILE"

    def read(self, environ: Mapping[str, str] | None = None) -> T:
        """The value; the default where nothing gives one. Raises BadSetting."""
        text = self._text(os.environ if environ is None else environ)
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            shown = "its value" if self.secret else repr(_URL_CREDENTIALS.sub("//…@", text))
            raise BadSetting(f"{self.name}: {shown} is not valid: {error}") from error

    def _text(self, environ: Mapping[str, str]) -> str:
        text = environ.get(self.name, "")
        file = environ.get(self._file_variable, "") if self.in_file else ""
        if not file:
            return text
        if text:
            raise BadSetting(f"{self.name} and {self._file_variable} are both given: give one of them")
        return self._text_of(Path(file))

    def _text_of(self, file: Path) -> str:
        # Messages name the file, never what it holds.
        where = f"{self._file_variable}: {file}"
        try:
            text = read_bounded(file, _SECRET_FILE_BYTES).decode().strip()
        except UnicodeDecodeError:
            raise BadSetting(f"{where} holds other bytes than UTF-8 text") from None
        except OSError as error:
            raise BadSetting(f"{where} cannot be read: {error.strerror}") from error
        except ValueError:
            raise BadSetting(f"{where} is longer than {_SECRET_FILE_BYTES} bytes") from None
        if not text:
            raise BadSetting(f"{where} is empty")
        return text

    def read_option(self, given: str | None) -> T:
        """The value of a command line option that stands for this row, held to the same rules; None: as `read`."""
        return self.read() if given is None else self.read({self.name: given})


def check_all(settings: Iterable[Setting[Any]]) -> None:
    """Read every row, so that a bad one stops a process at its start and not at the first use. Raises BadSetting."""
    for setting in settings:
        setting.read()


def whole_number(minimum: int = 0, maximum: int = 2**53 - 1) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"give a whole number from {minimum} to {maximum}") from None
        if not minimum <= value <= maximum:
            raise ValueError(f"give a whole number from {minimum} to {maximum}")
        return value

    return parse


def number(minimum: float, maximum: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"give a number from {minimum} to {maximum}") from None
        if not minimum <= value <= maximum:
            raise ValueError(f"give a number from {minimum} to {maximum}")
        return value

    return parse


def yes_or_no(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return known[text.lower()]
    except KeyError:
        raise ValueError("give true or false") from None


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"give one of {', '.join(choices)}")
        return text

    return parse


def base_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s?#]*)?", text):
        raise ValueError("give http(s)://host[:port][/path] without credentials")
    return text


def path(text: str) -> Path:
    return Path(text).expanduser()


def comma_separated(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
