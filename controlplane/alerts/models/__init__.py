"""Rows of what went wrong and who was told."""

from controlplane.alerts.models.cordons import CordonPolicy, PolicyCordon
from controlplane.alerts.models.events import NodeEvent
from controlplane.alerts.models.incidents import Alert, AlertSource, Incident, IncidentEntry, IncidentState
from controlplane.alerts.models.pipeline import AlertRoute, Inhibition, LastTold, MaintenanceWindow, Silence
from controlplane.alerts.models.receivers import (
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    Occasion,
    Receiver,
    ReceiverKind,
)
from controlplane.alerts.models.rules import PackedRule, Rule, RuleSeries
from controlplane.alerts.models.severity import Severity

__all__ = [
    "Alert",
    "AlertRoute",
    "AlertSource",
    "CordonPolicy",
    "Delivery",
    "DeliveryAttempt",
    "DeliveryState",
    "Incident",
    "IncidentEntry",
    "IncidentState",
    "Inhibition",
    "LastTold",
    "MaintenanceWindow",
    "NodeEvent",
    "Occasion",
    "PackedRule",
    "PolicyCordon",
    "Receiver",
    "ReceiverKind",
    "Rule",
    "RuleSeries",
    "Severity",
    "Silence",
]
