"""How grave something is: of events, rules, alerts and incidents alike."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Severity(models.TextChoices):
    INFO = "info", _("info")
    WARNING = "warning", _("warning")
    CRITICAL = "critical", _("critical")

    @property
    def rank(self) -> int:
        """The higher, the graver."""
        return list(Severity).index(self)
