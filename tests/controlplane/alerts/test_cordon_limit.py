from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.cordon_limit import room


@pytest.mark.parametrize(
    ("nodes", "permille", "minimum", "allowed"),
    [(3, 200, 1, 1), (3, 200, 0, 0), (50, 200, 1, 10), (9, 200, 1, 1), (10, 200, 1, 2), (4, 1000, 0, 4), (4, 0, 2, 2)],
)
def test_the_share_is_rounded_down_and_the_minimum_holds(nodes, permille, minimum, allowed):
    assert room(cordoned=0, nodes=nodes, max_nodes_permille=permille, min_nodes=minimum).allowed == allowed


@given(st.integers(0, 500), st.integers(0, 1000), st.integers(0, 20))
def test_cordoning_while_there_is_room_never_passes_the_limit(nodes, permille, minimum):
    cordoned = 0
    while room(cordoned=cordoned, nodes=nodes, max_nodes_permille=permille, min_nodes=minimum).left:
        cordoned += 1
    assert cordoned == max(minimum, nodes * permille // 1000)
