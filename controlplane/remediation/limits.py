"""How much may be repaired without a person. Pure.

Beyond the share of nodes the breaker trips: what strikes many nodes at once, such as a driver, is mended by no reset of
each. A node, or a fault, that comes back again and again is a person's to look at (NVSentinel's circuit breaker and
escalation).
"""

from __future__ import annotations

from datetime import timedelta

NODE_WINDOW, FAULT_WINDOW = timedelta(days=7), timedelta(days=1)


def trips(*, others: int, nodes: int, max_nodes_permille: int, min_nodes: int) -> str | None:
    """Why one more node is too many, where `others` were taken in hand within the window; None: it is not."""
    allowed = max(min_nodes, nodes * max_nodes_permille // 1000)
    if others < allowed:
        return None
    return (
        f"{others} other nodes were taken in hand within the window, and {allowed} of {nodes} may be "
        f"({max_nodes_permille / 10:g} %, at least {min_nodes}): what strikes so many is mended by no repair of each"
    )


def too_often(*, of_node: int, of_fault: int, max_of_a_node: int, max_of_a_fault: int) -> str | None:
    """Why a person must look, after so many repairs within `NODE_WINDOW` and `FAULT_WINDOW`; None: nobody need."""
    if of_node >= max_of_a_node:
        return f"this node was repaired {of_node} times within seven days; {max_of_a_node} is the most without a person"
    if of_fault >= max_of_a_fault:
        return f"the same fault came {of_fault} times within a day; {max_of_a_fault} is the most without a person"
    return None
