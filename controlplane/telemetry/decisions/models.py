"""Rows of decisions and sketches. Names are copied: they outlive the tenants and pools that bore them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from wire.messages import ADMITTED


class Decision(models.Model):
    """One request at one gateway. Rows are many, so times are whole milliseconds of Unix time."""

    gateway = models.CharField(max_length=63)
    request_id = models.CharField(max_length=128)
    # When the request came, by the gateway's clock.
    at_ms = models.BigIntegerField()
    # When this was stored, by ours: what retention and lists go by.
    received_ms = models.BigIntegerField(db_index=True)
    revision = models.BigIntegerField()
    stage = models.CharField(max_length=64)
    reason = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField()
    tenant = models.CharField(max_length=63)
    priority_class = models.CharField(max_length=63)
    pool = models.CharField(max_length=63)
    message = models.CharField(max_length=500)
    numbers = models.JSONField(default=dict)
    # MessagePack of its stages (`wire.messages.StageNote` as arrays): as text they would be most of the row.
    stages = models.BinaryField(default=b"\x90")

    class Meta:
        constraints: ClassVar = [
            # By request first: it is also how one is found.
            models.UniqueConstraint(fields=["request_id", "at_ms", "gateway"], name="one_decision_a_request")
        ]
        # Lists go backwards by `id`. Refusals are few among samples of admitted requests.
        indexes: ClassVar = [
            *(
                models.Index(fields=[field, "id"], name=f"decision_{field}")
                for field in ("tenant", "pool", "reason", "gateway")
            ),
            models.Index(fields=["id"], condition=~models.Q(reason=ADMITTED), name="decision_refusals"),
        ]


class MinuteSketch(models.Model):
    """What one gateway saw of one tenant, class and pool in one minute (wire.sketches.Sketch)."""

    gateway = models.CharField(max_length=63)
    # Its beginning, Unix time in ms.
    minute_ms = models.BigIntegerField()
    received_ms = models.BigIntegerField()
    tenant = models.CharField(max_length=63)
    priority_class = models.CharField(max_length=63)
    pool = models.CharField(max_length=63)
    arrivals = models.BigIntegerField()
    # MessagePack of the counts of prompt_tokens, max_tokens and output_tokens, in this order.
    lengths = models.BinaryField()

    class Meta:
        constraints: ClassVar = [
            # By minute first: summaries are of a span.
            models.UniqueConstraint(
                fields=["minute_ms", "gateway", "tenant", "priority_class", "pool"], name="one_sketch_a_minute"
            )
        ]
