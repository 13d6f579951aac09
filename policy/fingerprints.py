"""Which fingerprints were seen before, in memory that does not grow: pure, with errors that are known.

A fingerprint is a 64-bit hash, its bits evenly spread, so that what was sent is kept nowhere. Times are monotonic
milliseconds.
"""

from __future__ import annotations

from array import array

_MASK = 2**64 - 1
# With 16 bits a fingerprint, 8 probes are about the best: a full filter then takes 1 in 1,700 new ones for known
# (B. Bloom, "Space/Time Trade-offs in Hash Coding", 1970).
_BITS_EACH = 16
_PROBES = 8


class SeenLately:
    """Fingerprints of the last `window_ms`, one in each of `slots` places (a power of two), 16 bytes each.

    It never takes a new one for known. A known one is missed where another one took its place since: of n fingerprints
    that came in between, with probability 1 - (1 - 1/slots)^n.
    """

    def __init__(self, slots: int, window_ms: int) -> None:
        if slots & (slots - 1):
            raise ValueError(f"slots must be a power of two, not {slots}")
        self._last_slot, self._window_ms = slots - 1, window_ms
        self._fingerprints = array("Q", bytes(8 * slots))
        # The time after which each one counts as new; 0: the slot is free.
        self._until = array("Q", bytes(8 * slots))

    def seen(self, fingerprint: int, now_ms: int) -> bool:
        """Whether it came within the window. From now on it has."""
        fingerprint &= _MASK
        slot = fingerprint & self._last_slot
        known = self._fingerprints[slot] == fingerprint and now_ms < self._until[slot]
        self._fingerprints[slot] = fingerprint
        self._until[slot] = now_ms + self._window_ms
        return known


class SeenWithin:
    """Fingerprints of at least the last `window_ms` ÷ 2 and at most the last `window_ms`: two Bloom filters in turn.

    Each filter holds `capacity` fingerprints (a power of two), 2 bytes each. It never misses a known one. A new one is
    taken for known at most once in 850, which is when both filters are full. More than `capacity` in half a window do
    not raise that: the older half is given up earlier, so the window is shorter.
    """

    def __init__(self, capacity: int, window_ms: int) -> None:
        if capacity & (capacity - 1):
            raise ValueError(f"capacity must be a power of two, not {capacity}")
        self._capacity, self._half_ms = capacity, window_ms // 2
        self._bits = capacity * _BITS_EACH
        self._newer, self._older = self._filter(), self._filter()
        self._held = 0
        self._turned_ms = 0

    def seen(self, fingerprint: int, now_ms: int) -> bool:
        """Whether it came within the window. From now on it has."""
        self._turn(now_ms)
        places = self._places(fingerprint & _MASK)
        newer, older = self._newer, self._older
        if all(newer[byte] & bit for byte, bit in places):
            return True
        for byte, bit in places:
            newer[byte] |= bit
        self._held += 1
        return all(older[byte] & bit for byte, bit in places)

    def _turn(self, now_ms: int) -> None:
        age_ms = now_ms - self._turned_ms
        if age_ms < self._half_ms and self._held < self._capacity:
            return
        self._older = self._newer if age_ms < 2 * self._half_ms else self._filter()
        self._newer, self._held = self._filter(), 0
        # What is quiet for a while turns late, and must not forget late for that.
        self._turned_ms = self._turned_ms + self._half_ms if self._half_ms <= age_ms < 2 * self._half_ms else now_ms

    def _filter(self) -> bytearray:
        return bytearray(self._bits // 8)

    def _places(self, fingerprint: int) -> list[tuple[int, int]]:
        """Two halves of a hash make as many probes as are needed (A. Kirsch, M. Mitzenmacher, 2006)."""
        place, step, last = fingerprint >> 32, (fingerprint & 0xFFFF_FFFF) | 1, self._bits - 1
        return [((at := (place + number * step) & last) >> 3, 1 << (at & 7)) for number in range(_PROBES)]
