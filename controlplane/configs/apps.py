from django.apps import AppConfig


class ConfigsConfig(AppConfig):
    name = "controlplane.configs"
    label = "configs"

    def ready(self) -> None:
        from controlplane.configs.lock import lock_configuration
        from controlplane.configs.mending import refuse_unpublishable
        from controlplane.configs.step import compile_touched
        from controlplane.configs.waiting import wait_applied
        from controlplane.core import changes

        changes.register_opening(lock_configuration)
        changes.register_step(compile_touched)
        changes.register_step(refuse_unpublishable)
        changes.waiter[:] = [wait_applied]
