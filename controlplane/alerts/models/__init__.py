"""Rows of what went wrong and who was told."""

from controlplane.alerts.models.cordons import CordonPolicy, PolicyCordon
from controlplane.alerts.models.events import NodeEvent
from controlplane.alerts.models.incidents import Alert, Incident, IncidentEntry, IncidentState
from controlplane.alerts.models.pipeline import AlertRoute, Inhibition, MaintenanceWindow, Silence
from controlplane.alerts.models.receivers import Delivery, DeliveryAttempt, DeliveryState, Receiver, ReceiverKind
from controlplane.alerts.models.rules import Rule, RuleSeries
from controlplane.alerts.models.severity import Severity

__all__ = [
    "Alert",
    "AlertRoute",
    "CordonPolicy",
    "Delivery",
    "DeliveryAttempt",
    "DeliveryState",
    "Incident",
    "IncidentEntry",
    "IncidentState",
    "Inhibition",
    "MaintenanceWindow",
    "NodeEvent",
    "PolicyCordon",
    "Receiver",
    "ReceiverKind",
    "Rule",
    "RuleSeries",
    "Severity",
    "Silence",
]
