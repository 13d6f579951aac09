"""Rows of the pages themselves."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class LoginFailure(models.Model):
    """One failed log-in. `subject` is a keyed hash of name and address: what people type there may be a password."""

    subject = models.CharField(max_length=64)
    at = models.DateTimeField(db_index=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["subject", "at"])]
