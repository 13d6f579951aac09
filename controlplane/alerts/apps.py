from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "controlplane.alerts"
    label = "alerts"

    def ready(self) -> None:
        from controlplane.alerts.gauges import families
        from controlplane.alerts.steps import follow_fleet
        from controlplane.core import changes, gauges

        changes.register_step(follow_fleet)
        gauges.register(families)
