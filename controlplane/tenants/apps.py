from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "controlplane.tenants"
    label = "tenants"

    def ready(self) -> None:
        from controlplane.core.changes import register_section
        from controlplane.tenants.sections import SECTIONS

        for section in SECTIONS:
            register_section(section)
