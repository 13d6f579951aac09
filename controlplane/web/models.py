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


class SignOnFailure(models.Model):
    """A log-in by the provider that failed. `why` names a kind of trouble, and nothing that the provider told of a
    person.
    """

    at = models.DateTimeField(db_index=True)
    address = models.CharField(max_length=64, blank=True)
    why = models.CharField(max_length=300)
