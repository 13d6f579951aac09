"""Engine arguments: what an engine shall be started with beside what it was started with. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

# Words that name a secret at the end of an argument: api-key, hf-token.
SECRET_ENDS = ("-key", "-token", "-password", "-secret")
# Short names of vLLM's command line. Source: vllm/engine/arg_utils.py
_SHORT = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "dcp": "decode-context-parallel-size",
    "q": "quantization",
}
# vLLM's human_readable_int: 8k is 8,000 and 8K is 8,192.
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)([kKmMgGtT]?)")
_POWERS = "kmgt"
_SWITCHES = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}

# More no engine is started with.
_LARGEST = 10**12
Given = str | int | bool


def differing(desired: Mapping[str, Given], actual: Mapping[str, str]) -> dict[str, tuple[str, str | None]]:
    """By argument, as vLLM's command line has it: what is desired, and what the engine was started with instead.

    `actual`: names and values as agents report them (`EngineReport.arguments`), of a command line or of what the engine
    says of itself. None there: it does not say that it was started with this argument. Dashes and underscores are the
    same, as are `8K` and `8192`, `0.90` and `0.9`, `True` and `true`, and a switch that is off and one not given.
    """
    known = _by_name(actual)
    found = {}
    for name, value in desired.items():
        wanted, is_value = _plain(_text(value)), _actual(name, known)
        if (is_value is None and wanted == "false") or (is_value is not None and wanted == _plain(is_value)):
            continue
        found[name] = (_text(value), is_value)
    return found


def value_of(name: str, actual: Mapping[str, str]) -> str | None:
    """What an engine was started with, by the argument's name on vLLM's command line; None: it does not say."""
    value = _actual(name, _by_name(actual))
    return None if value is None else _plain(value)


def whole_of(name: str, actual: Mapping[str, str]) -> int | None:
    """The same as a whole number of 1 or more; None where it is none."""
    value = value_of(name, actual)
    try:
        number = Decimal(value or "")
    except InvalidOperation:
        return None
    return int(number) if number.is_finite() and 1 <= number <= _LARGEST and number == number.to_integral() else None


def _by_name(actual: Mapping[str, str]) -> dict[str, str]:
    """Under plain names; what stands on a command line, in no section, goes first."""
    known: dict[str, str] = {}
    for reported in sorted(actual, key=lambda name: "." in name):
        name = reported.rpartition(".")[2].replace("_", "-")
        known.setdefault(_SHORT.get(name, name), actual[reported])
    return known


def _actual(name: str, known: Mapping[str, str]) -> str | None:
    """A switch is turned off by an argument of its own, `--no-enable-lora`."""
    if (value := known.get(name)) is not None:
        return value
    off = known.get(f"no-{name}")
    return None if off is None or _plain(off) != "true" else "false"


def _text(value: Given) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(text: str) -> str:
    """The same for what means the same."""
    text = text.strip()
    if (switch := _SWITCHES.get(text.lower())) is not None:
        return switch
    if match := _NUMBER.fullmatch(text):
        return _number(match[1], match[2])
    if text[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(text), sort_keys=True)
        except (ValueError, RecursionError):
            return text
    return text


def _number(digits: str, unit: str) -> str:
    try:
        number = Decimal(digits)
    except InvalidOperation:
        return digits + unit
    if unit:
        base = 1000 if unit.islower() else 1024
        number *= base ** (_POWERS.index(unit.lower()) + 1)
    # Of equal numbers one form: 0.90 is 9E-1, and so is 0.9.
    return str(number.normalize())
