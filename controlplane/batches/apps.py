from django.apps import AppConfig


class BatchesConfig(AppConfig):
    name = "controlplane.batches"
    label = "batches"

    def ready(self) -> None:
        from controlplane.batches.batches import NOUN
        from controlplane.core.scope import of_a_tenant

        of_a_tenant.add(NOUN)
