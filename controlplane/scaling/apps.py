from django.apps import AppConfig


class ScalingConfig(AppConfig):
    name = "controlplane.scaling"
    label = "scaling"
