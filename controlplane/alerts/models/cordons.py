"""The policy that cordons nodes, and what it cordoned."""

from __future__ import annotations

from django.db import models

from controlplane.alerts.models.incidents import Incident


class CordonPolicy(models.Model):
    """Whether a critical hardware event cordons its node by itself. One row; off until a person turns it on."""

    enabled = models.BooleanField(default=False)
    # At most this share of the nodes, and always at least `min_nodes`, is cordoned by the policy within the window.
    max_nodes_permille = models.PositiveIntegerField(default=200)
    min_nodes = models.PositiveIntegerField(default=1)
    window_ms = models.PositiveBigIntegerField(default=300_000)


class PolicyCordon(models.Model):
    """A cordon that the policy set: what its limit counts."""

    node = models.CharField(max_length=63)
    at = models.DateTimeField(db_index=True)
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="cordons")
