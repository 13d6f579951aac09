"""Parameters of Prometheus' HTTP API: times, durations, selectors."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime

import promql_parser
from django.http import HttpRequest

from controlplane.telemetry.promql.errors import BadQuery
from controlplane.telemetry.promql.evaluation import LOOK_BACK_MS
from controlplane.telemetry.promql.grammar import milliseconds, parse_selector
from controlplane.telemetry.store.matching import Matcher

# Times beyond the year 9999, and everything that would not fit an integer of 64 bits after some arithmetic.
_MAX_SECONDS = 253_402_300_799.0
_WHOLE_NUMBER = re.compile(r"[-+]?[0-9]{1,18}")
_SHOWN_CHARACTERS = 100


class Parameters:
    """What a caller gave, in the address or as a form. Every method raises BadQuery naming the parameter."""

    def __init__(self, request: HttpRequest, now_ms: int) -> None:
        # As in Prometheus, the form goes before the address.
        self._sources = [request.POST, request.GET] if request.method == "POST" else [request.GET]
        self.now_ms = now_ms

    def all(self) -> list[tuple[str, str]]:
        return [(name, value) for source in self._sources for name, values in source.lists() for value in values]

    def text(self, name: str) -> str:
        return next(iter(self.given(name)), "")

    def given(self, name: str) -> list[str]:
        """Every value of a parameter that may be given several times."""
        return [value for given, value in self.all() if given == name]

    def query(self) -> str:
        text = self.text("query")
        if not text.strip():
            raise BadQuery('invalid parameter "query": give a PromQL expression')
        return text

    def time_ms(self, name: str, default_ms: int | None = None) -> int:
        """Unix seconds or RFC 3339."""
        text = self.text(name)
        if not text:
            if default_ms is None:
                raise BadQuery(f'invalid parameter "{name}": give Unix seconds or RFC 3339')
            return default_ms
        try:
            seconds = float(text)
        except ValueError:
            try:
                moment = datetime.fromisoformat(text)
                seconds = moment.timestamp() if moment.tzinfo else math.nan
            except (ValueError, OverflowError):
                seconds = math.nan
        if not abs(seconds) <= _MAX_SECONDS:
            raise BadQuery(
                f'invalid parameter "{name}": give Unix seconds or RFC 3339, not {text[:_SHOWN_CHARACTERS]!r}'
            )
        return round(seconds * 1000)

    def duration_ms(self, name: str) -> int | None:
        """Seconds, or a duration such as 1m30s; None where it is not given."""
        text = self.text(name)
        if not text:
            return None
        try:
            milli = float(text) * 1000
        except ValueError:
            try:
                milli = milliseconds(promql_parser.parse_duration(text))
            except (ValueError, OverflowError):
                milli = math.nan
        if not abs(milli) <= _MAX_SECONDS * 1000:
            raise BadQuery(
                f'invalid parameter "{name}": give seconds or a duration such as 15s, not {text[:_SHOWN_CHARACTERS]!r}'
            )
        return round(milli)

    def step_ms(self) -> int:
        step_ms = self.duration_ms("step")
        if step_ms is None:
            raise BadQuery('invalid parameter "step": give seconds or a duration such as 15s')
        return step_ms

    def look_back_ms(self) -> int:
        given = self.duration_ms("lookback_delta")
        if given is not None and given <= 0:
            raise BadQuery('invalid parameter "lookback_delta": give a duration longer than 0')
        return given or LOOK_BACK_MS

    def timeout_seconds(self) -> float | None:
        given = self.duration_ms("timeout")
        return None if given is None else max(0.0, given / 1000)

    def selectors(self, *, needed: bool) -> Sequence[Sequence[Matcher]]:
        """The matchers of each `match[]`."""
        given = self.given("match[]")
        if needed and not given:
            raise BadQuery('no match[] parameter provided: give a series selector such as up{node="n-1"}')
        return [parse_selector(text) for text in given]

    def span_ms(self) -> tuple[int, int]:
        """`start` (exclusive) and `end` of a look at series; by default everything."""
        end_ms = self.time_ms("end", self.now_ms + round(_MAX_SECONDS))
        start_ms = self.time_ms("start", 0)
        if end_ms < start_ms:
            raise BadQuery('invalid parameter "end": end timestamp must not be before start time')
        return start_ms - 1, end_ms

    def limit(self) -> int:
        """How many items are answered at most; 0: all."""
        limit = self.whole_number("limit", 0)
        if limit < 0:
            raise BadQuery('invalid parameter "limit": limit must be non-negative')
        return limit

    def whole_number(self, name: str, default: int) -> int:
        text = self.text(name)
        if not text:
            return default
        if not _WHOLE_NUMBER.fullmatch(text):
            raise BadQuery(f'invalid parameter "{name}": give a whole number, not {text[:_SHOWN_CHARACTERS]!r}')
        return int(text)
