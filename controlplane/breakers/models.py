"""Rows of breakers that a person forced."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Override(models.Model):
    """A breaker of a pool or an engine, forced open or closed until it expires or is lifted."""

    name = models.CharField(max_length=63, unique=True)
    subject_kind = models.CharField(max_length=16, choices=[("pool", _("pool")), ("engine", _("engine"))])
    subject = models.CharField(max_length=63)
    state = models.CharField(max_length=16, choices=[("open", _("open")), ("closed", _("closed"))])
    owner = models.CharField(max_length=150)
    reason = models.CharField(max_length=500)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name
