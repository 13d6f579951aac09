from django.apps import AppConfig


class RemediationConfig(AppConfig):
    name = "controlplane.remediation"
    label = "remediation"
