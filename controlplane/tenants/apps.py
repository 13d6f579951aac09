from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "controlplane.tenants"
    label = "tenants"

    def ready(self) -> None:
        from controlplane.core import gauges
        from controlplane.core.changes import register_section, register_step
        from controlplane.tenants.gauges import families
        from controlplane.tenants.key_keepers import leave_to_keepers
        from controlplane.tenants.own_scope import stay_in_scope
        from controlplane.tenants.sections import SECTIONS

        for section in SECTIONS:
            register_section(section)
        gauges.register(families)
        register_step(stay_in_scope)
        register_step(leave_to_keepers)
