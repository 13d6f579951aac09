"""Functions of Prometheus' templates, and numbers as Go prints them. Pure, and defined for every value there is.

Source: prometheus/template/template.go, version 3; Go's strconv and fmt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_address

_LARGE = ("k", "M", "G", "T", "P", "E", "Z", "Y")
_BINARY = ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_SMALL = ("m", "u", "n", "p", "f", "a", "z", "y")
# Whole numbers of Go's 64 bits, which a float beyond becomes the least of.
_INT_MAX = 2**63
# Exponents of ten outside of which Go writes the shortest form with one.
_PLAIN_FROM, _PLAIN_BELOW = -4, 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIRECTIVE = re.compile(r"%(?:%|([-+ #0]*)([0-9]*)(?:\.([0-9]*))?(.?))", re.DOTALL)
_WIDTH_MAX = 100
# As Go's net.SplitHostPort takes it apart.
_HOST_PORT = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:\[\]]*)", re.DOTALL)
_TAKES = "a number takes f, e, E, g, G or v (without places), a text s or v"


class BadFormat(ValueError):
    """A printf that Go would fill with %!; the message says why."""


def shown(value: float) -> str:
    """A number as it stands in a text without any function: Go's %v."""
    if not math.isfinite(value):
        return _not_finite(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    power = len(digits) + int(exponent) - 1
    if value and not _PLAIN_FROM <= power < _PLAIN_BELOW:
        mantissa = "".join(map(str, digits))
        fraction = f".{mantissa[1:]}" if len(mantissa) > 1 else ""
        return f"{'-' * sign}{mantissa[0]}{fraction}e{power:+03d}"
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def shown_labels(labels: Mapping[str, str]) -> str:
    """All of them, as Go prints a map."""
    return f"map[{' '.join(f'{name}:{labels[name]}' for name in sorted(labels))}]"


def humanize(value: float) -> str:
    """With a metric prefix."""
    if value == 0 or not math.isfinite(value):
        return _four(value)
    if abs(value) >= 1:
        return _four(*_scaled_down(value, 1000, _LARGE))
    return _four(*_scaled_up(value))


def humanize1024(value: float) -> str:
    """With a binary prefix."""
    if abs(value) <= 1 or not math.isfinite(value):
        return _four(value)
    return _four(*_scaled_down(value, 1024, _BINARY))


def humanize_duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return _four(seconds)
    if seconds == 0:
        return f"{_four(seconds)}s"
    if abs(seconds) < 1:
        return f"{_four(*_scaled_up(seconds))}s"
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    whole = int(seconds) if seconds < _INT_MAX else -_INT_MAX
    minutes, second = _divided(whole, 60)
    hours, minute = _divided(minutes, 60)
    days, hour = _divided(hours, 24)
    if days:
        return f"{sign}{days}d {hour}h {minute}m {second}s"
    if hours:
        return f"{sign}{hour}h {minute}m {second}s"
    return f"{sign}{minute}m {second}s" if minutes else f"{sign}{_four(seconds)}s"


def humanize_percentage(ratio: float) -> str:
    return f"{_four(ratio * 100)}%"


def humanize_timestamp(seconds: float) -> str:
    """Unix time as a date in UTC. What is beyond Go's nanoseconds, where Prometheus has an error, stays a number."""
    if not math.isfinite(seconds) or not -_INT_MAX <= seconds * 1e9 <= _INT_MAX:
        return _four(seconds)
    milliseconds, _ = _divided(int(seconds * 1e9), 1_000_000)
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    fraction = f".{moment.microsecond // 1000:03d}".rstrip("0") if moment.microsecond else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def title(text: str) -> str:
    """A capital after each character that separates words, as Go's strings.Title has it."""
    before = " " + text
    return "".join(_upper(letter) if _separates(last) else letter for last, letter in zip(before, text, strict=False))


def upper(text: str) -> str:
    return "".join(map(_upper, text))


def lower(text: str) -> str:
    """Letter by letter, as Go does it: no letter becomes two."""
    return "".join(letter.lower()[0] for letter in text)


def strip_port(address: str) -> str:
    """The host of `host:port`; what is no such thing stays."""
    return _host_port(address)[0]


def strip_domain(address: str) -> str:
    """The first part of a host's name, with its port; an IP address stays."""
    host, port = _host_port(address)
    if _is_ip_address(host):
        return address
    first = host.partition(".")[0]
    if not port:
        return first
    return f"[{first}]:{port}" if ":" in first else f"{first}:{port}"


def _host_port(address: str) -> tuple[str, str]:
    """Without a port, which is then empty, the host is all of it."""
    found = _HOST_PORT.fullmatch(address)
    return (found[1] or found[2] or "", found[3]) if found else (address, "")


def _is_ip_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    # Go has no zones there.
    return "%" not in host


OF_NUMBERS: dict[str, Callable[[float], str]] = {
    "humanize": humanize,
    "humanize1024": humanize1024,
    "humanizeDuration": humanize_duration,
    "humanizePercentage": humanize_percentage,
    "humanizeTimestamp": humanize_timestamp,
}
OF_TEXTS: dict[str, Callable[[str], str]] = {
    "title": title,
    "toUpper": upper,
    "toLower": lower,
    "stripPort": strip_port,
    "stripDomain": strip_domain,
}


def check_format(form: str, arguments: Sequence[type[float] | type[str]]) -> None:
    """Raise BadFormat unless `printf` fills the format with arguments of these types."""
    left = list(arguments)
    for flags, width, precision, verb in _directives(form):
        if not left:
            raise BadFormat(f"{form!r} asks for more arguments than there are")
        kind = left.pop(0)
        if max(int(width or 0), int(precision or 0)) > _WIDTH_MAX:
            raise BadFormat(f"{form!r}: at most {_WIDTH_MAX} places")
        if not (_number_takes(flags, precision, verb) if kind is float else _text_takes(flags, verb)):
            raise BadFormat(f"{form!r}: %{flags}{verb} of a {'number' if kind is float else 'text'}; {_TAKES}")
    if left:
        raise BadFormat(f"{form!r} asks for fewer arguments than there are")


def printf(form: str, *arguments: float | str) -> str:
    """What Go's Sprintf makes of it. The format was checked with arguments of the same types."""
    left = iter(arguments)

    def filled(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        argument = next(left)
        form = _text_form if isinstance(argument, str) else _number_form
        return form(argument, found[1], int(found[2] or 0), found[3], found[4])  # type: ignore[arg-type]

    return _DIRECTIVE.sub(filled, form)


def _directives(form: str) -> list[tuple[str, str, str | None, str]]:
    found = (each for each in _DIRECTIVE.finditer(form) if each[0] != "%%")
    return [(each[1], each[2], each[3], each[4]) for each in found]


def _number_takes(flags: str, precision: str | None, verb: str) -> bool:
    return bool(verb) and "#" not in flags and (verb in "feEgG" or (verb == "v" and precision is None))


def _text_takes(flags: str, verb: str) -> bool:
    return bool(verb) and verb in "sv" and not set(flags) & set("#0")


def _text_form(text: str, flags: str, width: int, precision: str | None, verb: str) -> str:
    cut = text if precision is None else text[: int(precision or 0)]
    return cut.ljust(width) if "-" in flags else cut.rjust(width)


def _number_form(value: float, flags: str, width: int, precision: str | None, verb: str) -> str:
    signs = "+" if "+" in flags else " " if " " in flags else ""
    if not math.isfinite(value):
        text = _not_finite(value)
        if signs and not text.startswith("-"):
            text = signs + text.removeprefix("+")
        return text.ljust(width) if "-" in flags else text.rjust(width)
    if verb in "gGv" and precision is None:
        text = shown(value).upper() if verb == "G" else shown(value)
        text = text if text.startswith("-") else signs + text
    else:
        places = 6 if precision is None else int(precision or 0)
        text = f"%{signs}.{places}{verb}" % value
    if "0" in flags and "-" not in flags:
        return text.zfill(width) if text[:1] != " " else f" {text[1:].zfill(width - 1)}"
    return text.ljust(width) if "-" in flags else text.rjust(width)


def _four(value: float, prefix: str = "") -> str:
    """Four significant digits, as %.4g."""
    return f"{value:.4g}{prefix}" if math.isfinite(value) else f"{_not_finite(value)}{prefix}"


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _scaled_down(value: float, step: int, prefixes: Sequence[str]) -> tuple[float, str]:
    used = ""
    for prefix in prefixes:
        if abs(value) < step:
            break
        used, value = prefix, value / step
    return value, used


def _scaled_up(value: float) -> tuple[float, str]:
    used = ""
    for prefix in _SMALL:
        if abs(value) >= 1:
            break
        used, value = prefix, value * 1000
    return value, used


def _divided(whole: int, by: int) -> tuple[int, int]:
    """Towards zero, as Go divides."""
    quotient = abs(whole) // by * (1 if whole >= 0 else -1)
    return quotient, whole - quotient * by


def _separates(letter: str) -> bool:
    return not (letter.isalnum() or letter == "_") if letter.isascii() else letter.isspace()


def _upper(letter: str) -> str:
    """Letter by letter, as Go does it: no letter becomes two."""
    return large if len(large := letter.upper()) == 1 else letter
