"""What routes put into the configuration."""

from controlplane.routing.services import ROUTES

SECTIONS = (ROUTES.as_section(),)
