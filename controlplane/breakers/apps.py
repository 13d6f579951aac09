from django.apps import AppConfig


class BreakersConfig(AppConfig):
    name = "controlplane.breakers"
    label = "breakers"

    def ready(self) -> None:
        from controlplane.breakers.sections import SECTIONS
        from controlplane.core.changes import register_section

        for section in SECTIONS:
            register_section(section)
