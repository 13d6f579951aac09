"""A node's GPUs and the links between them as a drawing. Pure: the same topology gives the same shapes.

Every length is a whole number of the drawing's own units, so that no language writes it otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from controlplane.web.shown.topology import UNDER_ONE_SWITCH, GpuPart, MigSlice, Topology

COLUMNS = 4
_BOX_WIDTH, _BOX_HEIGHT = 150, 76
_GAP, _ROW_GAP, _MARGIN = 20, 64, 14
_TITLE_HEIGHT, _BUS_HEIGHT, _SWITCH_HEIGHT = 24, 22, 34
# Between more lines than this, numbers would stand on one another: there the table says them.
_LABELLED_WIRES = 8
_BOLD_FROM_LINKS = 4
_ARC_HEIGHT = 30
_TEXT_CHARACTERS = 18


@dataclass(frozen=True)
class Box:
    """One GPU. `slices`: where each MIG instance of it begins and how wide it is, by its memory."""

    part: GpuPart
    x: int
    y: int
    width: int = _BOX_WIDTH
    height: int = _BOX_HEIGHT
    slices: tuple[tuple[MigSlice, int, int], ...] = ()

    @property
    def middle(self) -> int:
        return self.x + self.width // 2

    @property
    def bottom(self) -> int:
        return self.y + self.height

    @property
    def text_x(self) -> int:
        return self.x + 12

    @property
    def engines(self) -> str:
        names = ", ".join(self.part.engines)
        return names if len(names) <= _TEXT_CHARACTERS else names[: _TEXT_CHARACTERS - 1] + "…"


@dataclass(frozen=True)
class Wire:
    """A link. `look`: nvlink or pcie; `down`: some of its links are not up."""

    path: str
    look: str
    bold: bool = False
    down: bool = False
    label: str = ""
    label_x: int = 0
    label_y: int = 0


@dataclass(frozen=True)
class Area:
    """A frame with a word: a NUMA node, a switch, a bus."""

    kind: str
    label: str
    x: int
    y: int
    width: int
    height: int

    @property
    def middle(self) -> int:
        return self.x + self.width // 2

    @property
    def bottom(self) -> int:
        return self.y + self.height


@dataclass(frozen=True)
class Picture:
    """`areas` lie below `wires`, those below `boxes`."""

    width: int
    height: int
    areas: tuple[Area, ...]
    wires: tuple[Wire, ...]
    boxes: tuple[Box, ...]


def picture_of(topology: Topology) -> Picture:
    """GPUs in rows of at most COLUMNS, one NUMA node after the other, with the switch between the rows."""
    blocks = _blocks(topology.gpus)
    rows = [(block, row) for block, gpus in blocks for row in _chunks(gpus)]
    widest = max((len(row) for _block, row in rows), default=1)
    width = 2 * _MARGIN + widest * (_BOX_WIDTH + _GAP) + _GAP
    switched = topology.switched
    # The last row that is above the switches.
    above = (len(rows) - 1) // 2 if switched else None
    boxes: list[Box] = []
    areas: list[Area] = []
    hubs: list[Area] = []
    y = _MARGIN
    for at, (block, row) in enumerate(rows):
        placed = _row(row, y + _TITLE_HEIGHT)
        bus = _bus(topology, placed)
        height = _TITLE_HEIGHT + _BOX_HEIGHT + (_BUS_HEIGHT if bus else 0) + 10
        boxes += placed
        areas += [Area("numa", block, _MARGIN, y, width - 2 * _MARGIN, height), *bus]
        y += height + _ROW_GAP
        if at == above:
            hubs.append(Area("switch", "NVSwitch", _MARGIN, y - _ROW_GAP // 3, width - 2 * _MARGIN, _SWITCH_HEIGHT))
            y = hubs[0].bottom + 2 * _ROW_GAP // 3
    wires = [
        *_wires(topology, boxes, switched),
        *(_to_switch(box, hub) for hub in hubs for box in boxes if box.part.index in switched),
        *_between_blocks(topology, areas, width),
    ]
    areas += hubs
    height = max((area.bottom for area in areas), default=0) + _MARGIN
    return Picture(width, height, tuple(areas), tuple(wires), tuple(boxes))


def _blocks(gpus: Sequence[GpuPart]) -> list[tuple[str, list[GpuPart]]]:
    """By NUMA node; one without a name where none is told."""
    found: dict[int | None, list[GpuPart]] = {}
    for gpu in gpus:
        found.setdefault(gpu.numa, []).append(gpu)
    order = sorted(found, key=lambda numa: (numa is None, numa or 0))
    return [("" if numa is None else f"NUMA {numa}", found[numa]) for numa in order]


def _chunks(gpus: Sequence[GpuPart]) -> Iterator[Sequence[GpuPart]]:
    """Rows of as equal lengths as can be."""
    count = -(-len(gpus) // COLUMNS)
    size = -(-len(gpus) // count)
    return (gpus[start : start + size] for start in range(0, len(gpus), size))


def _row(gpus: Sequence[GpuPart], y: int) -> list[Box]:
    step = _BOX_WIDTH + _GAP
    lefts = [_MARGIN + _GAP + at * step for at in range(len(gpus))]
    return [Box(gpu, x, y, slices=_sliced(gpu, x)) for gpu, x in zip(gpus, lefts, strict=True)]


def _sliced(gpu: GpuPart, left: int) -> tuple[tuple[MigSlice, int, int], ...]:
    room, total = _BOX_WIDTH - 24, sum(each.memory_mebibytes for each in gpu.slices)
    placed, x = [], left + 12
    for each in gpu.slices:
        width = max(3, int(room * each.memory_mebibytes / total)) if total else room // len(gpu.slices)
        placed.append((each, x, width - 2))
        x += width
    return tuple(placed)


def _bus(topology: Topology, row: Sequence[Box]) -> list[Area]:
    """A bar under each GPUs of a row that share a PCIe switch."""
    groups: list[list[Box]] = []
    for box in row:
        for group in groups:
            if topology.over(group[0].part.index, box.part.index) in UNDER_ONE_SWITCH:
                group.append(box)
                break
        else:
            groups.append([box])
    return [
        Area(
            "bus",
            "PCIe",
            group[0].x + 10,
            group[0].bottom + 8,
            group[-1].x + _BOX_WIDTH - group[0].x - 20,
            _BUS_HEIGHT - 6,
        )
        for group in groups
        if len(group) > 1
    ]


def _wires(topology: Topology, boxes: Sequence[Box], switched: frozenset[int]) -> Iterator[Wire]:
    """NVLinks that go straight from GPU to GPU."""
    joined = [
        (one, other, links)
        for one, other in combinations(boxes, 2)
        if (links := topology.nvlinks(one.part.index, other.part.index))
        and not {one.part.index, other.part.index} <= switched
    ]
    for one, other, links in joined:
        label = f"NV{links}" if len(joined) <= _LABELLED_WIRES else ""
        bold = links >= _BOLD_FROM_LINKS
        x, y = (one.middle + other.middle) // 2, (one.y + other.bottom) // 2
        if one.y != other.y:
            path = f"M{one.middle} {one.bottom}L{other.middle} {other.y}"
            yield Wire(path, "nvlink", bold, label=label, label_x=x + 14, label_y=y)
            continue
        # Over the boxes between them, the higher the farther.
        rise = _ARC_HEIGHT if other.x - one.x > _BOX_WIDTH + _GAP else 14
        top = one.y - rise
        path = f"M{one.middle} {one.y}C{one.middle} {top} {other.middle} {top} {other.middle} {other.y}"
        yield Wire(path, "nvlink", bold, label=label, label_x=x, label_y=one.y - rise // 2)


def _to_switch(box: Box, switch: Area) -> Wire:
    above = box.y < switch.y
    start, end = (box.bottom, switch.y) if above else (box.y, switch.y + switch.height)
    down, links = box.part.links_down, box.part.links
    return Wire(
        f"M{box.middle} {start}V{end}",
        "nvlink",
        True,
        down > 0,
        f"{box.part.links_up}/{links}" if links else "",
        box.middle + 8,
        (start + end) // 2 + (12 if above else -2),
    )


def _between_blocks(topology: Topology, areas: Sequence[Area], width: int) -> Iterator[Wire]:
    """The way between NUMA nodes, where the agent says that GPUs go over it."""
    blocks = [area for area in areas if area.kind == "numa"]
    if "SYS" not in topology.between.values():
        return
    for upper, lower in pairwise(blocks):
        if upper.label != lower.label:
            x, top, bottom = width - _MARGIN - 26, upper.y + upper.height, lower.y
            yield Wire(f"M{x} {top}V{bottom}", "pcie", label="SYS", label_x=x - 30, label_y=(top + bottom) // 2 + 4)
