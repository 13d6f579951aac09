from django.apps import AppConfig


class FleetConfig(AppConfig):
    name = "controlplane.fleet"
    label = "fleet"

    def ready(self) -> None:
        from controlplane.core import gauges
        from controlplane.core.changes import register_section
        from controlplane.fleet.gauges import families
        from controlplane.fleet.sections import SECTIONS

        for section in SECTIONS:
            register_section(section)
        gauges.register(families)
