"""The topology of a node: what its agent measures, as a drawing and as a table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from controlplane.telemetry import query
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from controlplane.web.measured import Numbers
from controlplane.web.shown.fleet import GpuLine
from controlplane.web.shown.topology import GpuPart, MigSlice, Topology, topology_of
from controlplane.web.shown.topology_picture import Box, picture_of
from tests.controlplane.telemetry.filling import store
from tests.web.agent import links
from tests.web.hardware import node
from wire.write_body import Series


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return store_path()


def line(index: int, state: str = "ok") -> GpuLine:
    return GpuLine(index, f"GPU-{index}", "H100", "", state, False, None, None, None, None)


def told(series: Iterable[Series]) -> Numbers:
    """As the store would answer."""
    values: dict[str, dict[tuple[str, ...], float]] = {}
    names = {
        "headworks_gpu_topology_info": ("between", ("gpu", "peer", "link")),
        "headworks_gpu_nvlink_up": ("nvlink", ("gpu", "link")),
        "headworks_gpu_numa_node": ("numa", ("gpu",)),
        "headworks_gpu_processes": ("engines", ("gpu", "engine")),
        "DCGM_FI_DEV_FB_TOTAL": ("slices", ("gpu", "GPU_I_ID", "GPU_I_PROFILE")),
    }
    for each in series:
        name, by = names[each.labels["__name__"]]
        values.setdefault(name, {})[tuple(each.labels.get(label, "") for label in by)] = each.samples[0][1]
    return Numbers(values)


def topology(between: Mapping[tuple[int, int], str], links_of: int, count: int, **facts: Any) -> Topology:
    return Topology(tuple(GpuPart(i, "ok", links_up=links_of, links=links_of, **facts) for i in range(count)), between)


def test_gpus_that_each_reach_all_others_by_all_their_links_hang_on_switches() -> None:
    found = topology_of([line(index) for index in range(8)], told(links("n", ["a", "b"], 1, down=5, sliced=3)))
    assert found.switched == frozenset(range(8))
    assert found.nvlinks(0, 1) == 18
    assert [gpu.numa for gpu in found.gpus] == [0] * 4 + [1] * 4
    assert (found.gpus[5].links_up, found.gpus[5].links_down) == (16, 2)
    assert [each.profile for each in found.gpus[3].slices] == ["3g.40gb", "2g.20gb", "1g.10gb"]
    assert [gpu.engines for gpu in found.gpus] == [("a",)] * 4 + [("b",)] * 4
    picture = picture_of(found)
    assert [area.label for area in picture.areas if area.kind == "switch"] == ["NVSwitch"]
    assert [wire.label for wire in picture.wires if wire.down] == ["16/18"]
    sliced = next(box for box in picture.boxes if box.part.index == 3)
    assert [width for _slice, _x, width in sliced.slices] == sorted(
        (width for _slice, _x, width in sliced.slices), reverse=True
    )


def test_links_that_go_straight_from_gpu_to_gpu_are_drawn_between_them() -> None:
    found = topology({(0, 1): "NV4", (2, 3): "NV4", (0, 2): "SYS", (1, 3): "SYS"}, 4, 4)
    assert found.switched == frozenset()
    picture = picture_of(found)
    assert [wire.label for wire in picture.wires if wire.look == "nvlink"] == ["NV4", "NV4"]
    assert not [area for area in picture.areas if area.kind == "switch"]


def test_two_gpus_joined_by_all_their_links_need_no_switch() -> None:
    assert topology({(0, 1): "NV12"}, 12, 2).switched == frozenset()


def test_gpus_under_one_pcie_switch_stand_on_one_bar_and_sockets_are_joined() -> None:
    between = {(a, b): "PIX" if a // 2 == b // 2 else "SYS" for a, b in combinations(range(4), 2)}
    gpus = tuple(GpuPart(index, "ok", numa=index // 2) for index in range(4))
    picture = picture_of(Topology(gpus, between))
    assert [area.kind for area in picture.areas] == ["numa", "bus", "numa", "bus"]
    assert [wire.label for wire in picture.wires] == ["SYS"]


def test_what_is_no_index_is_no_gpu_and_what_nobody_told_is_not_known() -> None:
    odd: dict[str, dict[tuple[str, ...], float]] = {"between": {("0", "x", "NV1"): 1.0, ("0", "0", "NV1"): 1.0}}
    found = topology_of([line(0), line(1)], Numbers(odd))
    assert not found.is_told
    assert found.matrix[0][1] == ["✕", "–"]


LINKS = st.sampled_from(["NV1", "NV4", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", "", "odd"])


@given(st.data(), st.integers(1, 16), st.integers(0, 18))
def test_every_gpu_is_drawn_once_within_the_frame_and_over_no_other(data: Any, count: int, links_of: int) -> None:
    pairs = list(combinations(range(count), 2))
    between = dict(zip(pairs, data.draw(st.lists(LINKS, min_size=len(pairs), max_size=len(pairs))), strict=True))
    numa = data.draw(st.lists(st.sampled_from([None, 0, 1, 2]), min_size=count, max_size=count))
    slices = (MigSlice("1", "1g", 0.0), MigSlice("2", "1g", 5.0))
    gpus = tuple(GpuPart(i, "ok", numa[i], links_of, links_of, ("e",), slices) for i in range(count))
    picture = picture_of(Topology(gpus, between))
    assert sorted(box.part.index for box in picture.boxes) == list(range(count))
    for box in picture.boxes:
        assert box.x >= 0
        assert box.x + box.width <= picture.width
        assert box.y >= 0
        assert box.bottom <= picture.height
    for one, other in combinations(picture.boxes, 2):
        assert apart(one, other)
    switches = [area for area in picture.areas if area.kind == "switch"]
    for switch in switches:
        assert all(box.bottom <= switch.y or box.y >= switch.y + switch.height for box in picture.boxes)
        assert switch.y + switch.height <= picture.height


def apart(one: Box, other: Box) -> bool:
    return (
        one.x + one.width <= other.x or other.x + other.width <= one.x or one.bottom <= other.y or other.bottom <= one.y
    )


def test_the_page_of_a_node_draws_it_and_says_the_same_as_a_table(viewer: Client, own_store: Path) -> None:
    node("rack-1", engines=["llama-a"], lost=[2])
    store(own_store, links("rack-1", ["llama-a"], int(time.time() * 1000), down=5), Owner("node", "rack-1"))
    page = viewer.get("/fleet/rack-1/").content.decode()
    drawing = page[page.index("<svg class=") : page.index("</svg>", page.index('id="topology-title"'))]
    assert drawing.count('class="gpu ') == 8
    assert 'class="gpu bad"' in drawing
    assert "style=" not in drawing
    assert "16 of 18 NVLinks" in drawing
    table = page.partition('id="topology-table"')[2].partition("</details>")[0]
    assert table.count("NV18") >= 42
    assert "16 / 18" in table


def test_a_node_whose_agent_tells_no_links_says_so_and_why(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    node("rack-1")
    assert "Nothing is known of the links" in viewer.get("/fleet/rack-1/").content.decode()

    def away(*_asked: object, **_more: object) -> list[query.Sample]:
        raise query.QueryError("it is away")

    monkeypatch.setattr(query, "instant", away)
    page = viewer.get("/fleet/rack-1/").content.decode().partition('id="topology"')[2]
    assert "it is away" in page
