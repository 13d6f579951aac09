from django.apps import AppConfig


class ScalingConfig(AppConfig):
    name = "controlplane.scaling"
    label = "scaling"

    def ready(self) -> None:
        from controlplane.core import gauges
        from controlplane.scaling.gauges import families

        gauges.register(families)
