"""The XIDs of a node by GPU: how often, when last, what each means and asks for."""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.test import Client
from django.utils import timezone

from controlplane.alerts.models import NodeEvent
from controlplane.web.shown import xids
from tests.web.hardware import gpu_uuid, node

_31 = "XID 31 (GPU memory page fault) on GPU 2 (NVIDIA H100, 00000000:1B:00.0): class application, action restart_app"


def event(
    subject: str, detail: str, *, minutes_ago: int = 0, kind: str = "xid", severity: str = "warning"
) -> NodeEvent:
    at = timezone.now() - timedelta(minutes=minutes_ago)
    return NodeEvent.objects.create(
        node="rack-1", event_id=str(uuid.uuid4()), at=at, received_at=at, kind=kind, subject=subject,
        severity=severity, detail=detail,
    )  # fmt: skip


def test_each_xid_of_each_gpu_is_one_line_with_all_that_were_counted(db: None) -> None:
    gpu = gpu_uuid("rack-1", 2)
    event(gpu, f"{_31}, then run_diagnostics", minutes_ago=9)
    newest = event(gpu, f"{_31}, then run_diagnostics; 4 more of it since the last event", minutes_ago=3)
    event(
        "GPU-gone", "XID 79 (GPU has fallen off the bus) on GPU 3: class hardware, action cordon_reboot", minutes_ago=5
    )
    first, second = xids.history("rack-1", {gpu: 2})
    assert (first.number, first.name, first.gpu, first.count, first.last_at) == (
        31, "GPU memory page fault", 2, 6, newest.at,
    )  # fmt: skip
    assert (first.class_label, first.action_label) == (
        "application",
        "restart the engine; if it goes on, run diagnostics",
    )
    assert first.runbook_url == "docs/runbooks/gpu-xid-application.md"
    assert (second.number, second.gpu, second.subject, second.count) == (79, None, "GPU-gone", 1)


def test_an_event_of_an_nvswitch_stands_beside_them(db: None) -> None:
    event("0000:05:00.0", "SXid 20034 on the NVSwitch at 0000:05:00.0", kind="sxid")
    (line,) = xids.history("rack-1", {})
    assert (line.kind, line.number, line.name, line.class_label, line.action_label) == ("SXid", 20034, "", "", "")


def test_words_that_are_none_of_an_agents_are_passed_over_or_shown_as_they_are(db: None) -> None:
    event("GPU-1", "the driver said something")
    event("GPU-1", "XID 999 (<script>) on GPU 1: class quantum, action pray")
    (line,) = xids.history("rack-1", {})
    assert (line.number, line.class_label, line.action_label) == (999, "quantum", "pray")


def test_the_page_of_a_node_lists_them(viewer: Client) -> None:
    node("rack-1")
    assert "No XID was told." in viewer.get("/fleet/rack-1/").content.decode()
    event(gpu_uuid("rack-1", 2), _31.replace("GPU memory page fault", "<script>"))
    table = viewer.get("/fleet/rack-1/").content.decode().partition('id="xids"')[2].partition("</section>")[0]
    assert "GPU 2" in table
    assert "&lt;script&gt;" in table
    assert "/docs/runbooks/gpu-xid-application/" in table
