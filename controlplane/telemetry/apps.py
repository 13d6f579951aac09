from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    name = "controlplane.telemetry"
    label = "telemetry"

    def ready(self) -> None:
        from controlplane.core import gauges
        from controlplane.telemetry.gauges import families

        gauges.register(families)
