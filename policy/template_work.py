"""What the rendering of an uploaded chat template may take, and what it has taken."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from jinja2.utils import Namespace

# Of a text or list that is made at once, and of the whole. Bodies are smaller.
MAX_CHARACTERS = 32 * 1024 * 1024
# To copy so many characters, or to look at so many values, takes about as long as one step.
_CHARACTERS_A_STEP, _VALUES_A_STEP = 4_096, 8
_STEPS_A_LOOK = 64
# Unix seconds.
Clock = Callable[[], float]


class BadTemplate(ValueError):
    """The text is no template, or cannot render a conversation; the message says why."""


class TooMuchWork(BadTemplate):
    """A template has used up what it may."""


class Budget(NamedTuple):
    """What a rendering may take. `steps`: passes of loops and calls of macros; one takes about a microsecond."""

    steps: int
    seconds: float


class Work:
    """What one rendering may still do. `given`: what came in a body, whose size is bounded and holds nothing twice."""

    __slots__ = ("_budget", "_clock", "_ends_at", "_given", "_steps_left", "_unlooked")

    def __init__(self, budget: Budget, clock: Clock, given: Iterable[Any] = ()) -> None:
        self._budget, self._clock = budget, clock
        self._steps_left, self._ends_at = budget.steps, clock() + budget.seconds
        self._unlooked = 0
        # They outlive the rendering.
        self._given = set(map(id, given))

    def is_given(self, value: Any) -> bool:
        return id(value) in self._given

    def step(self, steps: int = 1) -> None:
        """Raises: TooMuchWork."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TooMuchWork(f"it takes more than {self._budget.steps} passes of its loops and macros")
        self._unlooked += steps
        if self._unlooked >= _STEPS_A_LOOK:
            self._unlooked = 0
            if self._clock() > self._ends_at:
                raise TooMuchWork(f"it takes longer than {self._budget.seconds:g} s")

    def make(self, characters: int) -> None:
        """Before a text, or a list, of so many is made. Raises: BadTemplate, TooMuchWork."""
        if characters > MAX_CHARACTERS:
            raise BadTemplate(f"it makes a text of more than {MAX_CHARACTERS} characters")
        if characters >= _CHARACTERS_A_STEP:
            self.step(characters // _CHARACTERS_A_STEP)

    def weigh(self, value: Any) -> int:
        """About how many characters a value has as a text. Raises: BadTemplate, TooMuchWork.

        A list may hold another one many times, and that yet another: what is short in memory is endless as a text.
        """
        if isinstance(value, str):
            return len(value)
        weight, values, waiting = 0, 0, [value]
        while waiting:
            each = waiting.pop()
            values += 1
            if isinstance(each, str):
                weight += len(each) + 4
            elif isinstance(each, dict):
                waiting += each
                waiting += each.values()
            elif isinstance(each, Collection):
                waiting += each
            elif isinstance(each, Namespace):
                raise BadTemplate("a namespace is no text")
            else:
                weight += each.bit_length() // 3 if isinstance(each, int) else 32
            if values % _VALUES_A_STEP == 0:
                self.step()
                self.make(weight)
        return weight + 4 * values
