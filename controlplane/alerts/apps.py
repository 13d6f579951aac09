from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "controlplane.alerts"
    label = "alerts"

    def ready(self) -> None:
        from controlplane.alerts.steps import follow_fleet
        from controlplane.core import changes

        changes.register_step(follow_fleet)
