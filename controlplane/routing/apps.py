from django.apps import AppConfig


class RoutingConfig(AppConfig):
    name = "controlplane.routing"
    label = "routing"

    def ready(self) -> None:
        from controlplane.core.changes import register_section
        from controlplane.routing.sections import SECTIONS

        for section in SECTIONS:
            register_section(section)
