"""Runs a regular expression's program over a text, in time linear in both. Source: Go's regexp/backtrack.go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from controlplane.telemetry.promql.errors import Unanswerable

# Of pairs of an instruction and a place in the text, each looked at once: some 0.5 s at worst.
_MAX_STATES = 10**6
_WORD = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")


class Take(NamedTuple):
    """One character that the test holds for."""

    test: Callable[[str], object]


class Split(NamedTuple):
    """Goes on `first` instructions from here, or where that leads nowhere `second` from here."""

    first: int
    second: int


class Jump(NamedTuple):
    by: int


class Save(NamedTuple):
    """Where a group begins (2 × its number) or ends (the number after)."""

    slot: int


class Assert(NamedTuple):
    """Holds between two characters, or at an end of the text: its place is given."""

    test: Callable[[str, int], bool]


Instruction = Take | Split | Jump | Save | Assert
Program = list[Instruction]


def at_begin(text: str, at: int) -> bool:
    return at == 0


def at_end(text: str, at: int) -> bool:
    return at == len(text)


def at_word_edge(text: str, at: int) -> bool:
    return (at > 0 and text[at - 1] in _WORD) != (at < len(text) and text[at] in _WORD)


def inside_word_or_not(text: str, at: int) -> bool:
    return not at_word_edge(text, at)


def groups_of(program: Sequence[Instruction], groups: int, text: str) -> list[str] | None:
    """What each group matched, empty for nothing, where the program matches the whole text; else None.

    Raises Unanswerable.
    """
    places = len(text) + 1
    if (len(program) + 1) * places > _MAX_STATES:
        raise Unanswerable(
            f"a regular expression with {groups} groups is too large for a value of {len(text)} characters"
        )
    visited = bytearray((len(program) + 1) * places)
    waiting = [(0, 0, (-1,) * (2 * groups))]
    while waiting:
        step, at, saved = waiting.pop()
        # What was tried in a place before leads nowhere from there.
        while not visited[step * places + at]:
            visited[step * places + at] = 1
            if step == len(program):
                if at == len(text):
                    return [text[saved[slot] : saved[slot + 1]] for slot in range(0, 2 * groups, 2)]
                break
            instruction = program[step]
            # `match` would take twice the time here.
            if isinstance(instruction, Take):
                if at == len(text) or not instruction.test(text[at]):
                    break
                step, at = step + 1, at + 1
            elif isinstance(instruction, Split):
                waiting.append((step + instruction.second, at, saved))
                step += instruction.first
            elif isinstance(instruction, Jump):
                step += instruction.by
            elif isinstance(instruction, Save):
                saved = (*saved[: instruction.slot], at, *saved[instruction.slot + 1 :])
                step += 1
            elif not instruction.test(text, at):
                break
            else:
                step += 1
    return None
