from django.apps import AppConfig


class ConfigsConfig(AppConfig):
    name = "controlplane.configs"
    label = "configs"

    def ready(self) -> None:
        from controlplane.configs import target_gauges
        from controlplane.configs.lock import open_write
        from controlplane.configs.mending import refuse_unpublishable
        from controlplane.configs.staged import refuse_against_stage
        from controlplane.configs.step import compile_touched
        from controlplane.configs.waiting import wait_applied
        from controlplane.core import changes, gauges

        changes.register_opening(open_write)
        changes.register_step(compile_touched)
        changes.register_step(refuse_against_stage)
        changes.register_step(refuse_unpublishable)
        changes.waiter[:] = [wait_applied]
        gauges.register(target_gauges.families)
