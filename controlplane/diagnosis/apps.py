from django.apps import AppConfig


class DiagnosisConfig(AppConfig):
    name = "controlplane.diagnosis"
    label = "diagnosis"
