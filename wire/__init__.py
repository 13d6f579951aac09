"""Messages between Headworks processes: snapshots, acks, reports, events, decisions. No Django.

Bump `PROTOCOL` when a message changes so that an older peer would misread it; the control plane serves
this version and the one before.
"""

# Of all parts: they are released together.
VERSION = "0.1.0"
PROTOCOL = 1
SERVED_PROTOCOLS = (PROTOCOL,)
