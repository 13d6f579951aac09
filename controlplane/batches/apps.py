from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_delete


class BatchesConfig(AppConfig):
    name = "controlplane.batches"
    label = "batches"

    def ready(self) -> None:
        from controlplane.batches.batches import NOUN
        from controlplane.batches.gauges import families
        from controlplane.core import gauges
        from controlplane.core.scope import of_a_tenant
        from controlplane.tenants.models import Tenant

        of_a_tenant.add(NOUN)
        gauges.register(families)
        post_delete.connect(_forget_tenant, sender=Tenant)


def _forget_tenant(instance: Any, **_: Any) -> None:
    """Whoever gets its name later shall not find its files. Their contents are pruned, as nobody names them."""
    from controlplane.batches.models import Batch, File

    Batch.objects.filter(tenant=instance.name).delete()
    File.objects.filter(tenant=instance.name).delete()
