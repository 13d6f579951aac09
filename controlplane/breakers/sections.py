"""What overrides put into the configuration."""

from controlplane.breakers.services import OVERRIDES

SECTIONS = (OVERRIDES.as_section(restorable=False, written=False),)
