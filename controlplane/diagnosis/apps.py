from django.apps import AppConfig


class DiagnosisConfig(AppConfig):
    name = "controlplane.diagnosis"
    label = "diagnosis"

    def ready(self) -> None:
        from controlplane.core import gauges
        from controlplane.diagnosis.gauges import families

        gauges.register(families)
