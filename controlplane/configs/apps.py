from django.apps import AppConfig


class ConfigsConfig(AppConfig):
    name = "controlplane.configs"
    label = "configs"

    def ready(self) -> None:
        from controlplane.configs.step import compile_touched
        from controlplane.configs.waiting import wait_applied
        from controlplane.core import changes

        changes.register_step(compile_touched)
        changes.waiter[:] = [wait_applied]
