from django.apps import AppConfig


class RemediationConfig(AppConfig):
    name = "controlplane.remediation"
    label = "remediation"

    def ready(self) -> None:
        from controlplane.core import gauges
        from controlplane.remediation.gauges import families

        gauges.register(families)
