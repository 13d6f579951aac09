"""Rows of where requests go."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Route(models.Model):
    """A rule, in the form of `wire.snapshot.Route`: `match` conditions, `pools` weights in per mille or `reject`."""

    name = models.CharField(max_length=63, unique=True)
    order = models.PositiveBigIntegerField(default=100)
    match = models.JSONField(default=dict)
    pools = models.JSONField(null=True)
    # {pool: order}, tried in that order when no pool of `pools` can take the request.
    fallbacks = models.JSONField(null=True)
    # As `wire.snapshot.Cascade`; null: none.
    cascade = models.JSONField(null=True)
    reject = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering: ClassVar = ["order", "name"]

    def __str__(self) -> str:
        return self.name
