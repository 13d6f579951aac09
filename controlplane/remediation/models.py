"""Rows of repairs of nodes, and the policy by which they are begun. Written by `services` alone."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from controlplane.alerts.models import Alert, Incident


class Mode(models.TextChoices):
    OBSERVE = "observe", _("observe")
    ACT = "act", _("act")


class State(models.TextChoices):
    """Those up to `verifying` are open; of the others each keeps its own."""

    HELD = "held", _("held")
    QUARANTINED = "quarantined", _("quarantined")
    DRAINING = "draining", _("draining")
    DRAINED = "drained", _("drained")
    REMEDIATING = "remediating", _("remediating")
    VERIFYING = "verifying", _("verifying")
    REMEDIATED = "remediated", _("remediated")
    OBSERVED = "observed", _("observed only")
    FAILED = "failed", _("failed")
    ESCALATED = "escalated", _("escalated")
    CANCELLED = "cancelled", _("cancelled")


OPEN_STATES = (
    State.HELD, State.QUARANTINED, State.DRAINING, State.DRAINED, State.REMEDIATING, State.VERIFYING,
)  # fmt: skip
# A person has to do what comes next.
UNMENDED_STATES = (State.FAILED, State.ESCALATED)


class RemediationPolicy(models.Model):
    """One row. It observes until a person has it act."""

    mode = models.CharField(max_length=16, choices=Mode.choices, default=Mode.OBSERVE)
    # Cause → action, where they differ from `causes.ACTIONS`.
    actions = models.JSONField(default=dict)
    # At most this share of the nodes, and always at least `min_nodes`, is taken in hand within the window; whatever
    # asks for more trips the breaker, which a person alone resets.
    max_nodes_permille = models.PositiveIntegerField(default=100)
    min_nodes = models.PositiveIntegerField(default=1)
    window_ms = models.PositiveBigIntegerField(default=3_600_000)
    tripped_at = models.DateTimeField(null=True)
    tripped_because = models.CharField(max_length=500, blank=True)
    # Repairs of a node within seven days, and of one fault of a GPU within a day, from which on a person must look.
    max_of_a_node = models.PositiveIntegerField(default=5)
    max_of_a_fault = models.PositiveIntegerField(default=5)
    drain_limit_ms = models.PositiveBigIntegerField(default=900_000)
    # So long a repaired node must be well before it takes work again.
    verify_ms = models.PositiveBigIntegerField(default=120_000)


class Remediation(models.Model):
    """One repair of a node, from the fault to its being back in service, or in a person's hands."""

    node = models.CharField(max_length=63, db_index=True)
    # What it repairs; the group that it is told in may hold other nodes' too.
    fault = models.ForeignKey(Alert, null=True, on_delete=models.SET_NULL, related_name="remediations")
    # The GPU's UUID; empty where the fault is the node's.
    gpu = models.CharField(max_length=200, blank=True)
    cause = models.CharField(max_length=64)
    action = models.CharField(max_length=32)
    incident = models.ForeignKey(Incident, null=True, on_delete=models.SET_NULL, related_name="remediations")
    state = models.CharField(max_length=16, choices=State.choices, db_index=True)
    said = models.CharField(max_length=2000, blank=True)
    # When the fault was first looked at, and from when the node is in hand, when that was.
    begun_at = models.DateTimeField(db_index=True)
    state_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    # Acts of the node's agent by what they are for, such as {"drain llama-1": "<act id>"}.
    acts = models.JSONField(default=dict)
    # Since when all has been well again; null while it is not.
    well_since = models.DateTimeField(null=True)
    # What says to people that they are needed.
    alert = models.ForeignKey(Alert, null=True, on_delete=models.SET_NULL, related_name="+")
    look_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["node"], condition=Q(state__in=OPEN_STATES), name="one_open_remediation_a_node"
            ),
            models.UniqueConstraint(fields=["fault"], condition=~Q(state="cancelled"), name="one_remediation_a_fault"),
        ]
