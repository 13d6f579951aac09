"""What agents say in events, whose first words are an incident's title, and the titles that services give."""

from __future__ import annotations

from django.utils.translation import gettext_noop

FORMS = (
    # Of GPUs.
    gettext_noop("%(where)s is lost"),
    gettext_noop("%(where)s is lost: the driver cannot reach it any more"),
    gettext_noop("%(where)s answers every NVML call with an error"),
    gettext_noop("%(where)s does not answer NVML"),
    gettext_noop("%(where)s does not answer NVML; its values are no longer reported"),
    gettext_noop("%(where)s answers again"),
    gettext_noop("XID %(xid)s (%(name)s) on %(where)s"),
    gettext_noop("XID %(xid)s (%(name)s) on %(where)s: class %(class)s, action %(act)s"),
    gettext_noop("the GPU at %(pci)s"),
    gettext_noop("XID %(xid)s is over"),
    gettext_noop("%(count)s more of it since the last event"),
    gettext_noop("SXid %(sxid)s on the NVSwitch at %(pci)s"),
    gettext_noop("SXid %(sxid)s on the NVSwitch at %(pci)s: %(words)s"),
    gettext_noop("NVML can be read again"),
    gettext_noop("NVML is unresponsive: no GPU answers"),
    gettext_noop("NVML is unresponsive"),
    gettext_noop("NVML did not open within %(seconds)s s"),
    gettext_noop("%(count)s processes hang in the driver and cannot be ended; waiting for one to go"),
    gettext_noop("%(count)s processes hang in the driver and cannot be ended"),
    gettext_noop("a process to read NVML cannot be started: %(words)s"),
    gettext_noop("the process that reads NVML is replaced: %(words)s"),
    gettext_noop("the process that reads NVML ended with exit status %(status)s"),
    # Of engines.
    gettext_noop("engine %(engine)s (%(about)s) is %(condition)s"),
    gettext_noop("engine %(engine)s (%(about)s) is %(condition)s: %(said)s"),
    gettext_noop("engine %(engine)s (%(about)s) is paused: it takes requests and computes nothing"),
    gettext_noop("engine %(engine)s (%(about)s) is sleeping: its memory is given back and it serves nothing"),
    gettext_noop("engine %(engine)s (%(about)s) is %(condition)s beyond the time of its restart"),
    gettext_noop("engine %(engine)s (%(about)s) is %(condition)s beyond the time of its restart: %(said)s"),
    gettext_noop("engine %(engine)s (%(about)s) is up again"),
    gettext_noop("engine %(engine)s (%(about)s) works again"),
    gettext_noop("engine %(engine)s (%(about)s) goes on"),
    gettext_noop("engine %(engine)s (%(about)s) is awake again"),
    gettext_noop("engine %(engine)s (%(about)s) started again, as it was asked to"),
    gettext_noop("engine %(engine)s (%(about)s) started again, and nobody here asked for it"),
    gettext_noop("engine %(engine)s (%(about)s) fails the probe %(probe)s"),
    gettext_noop("engine %(engine)s (%(about)s) fails the probe %(probe)s: %(words)s"),
    gettext_noop("engine %(engine)s (%(about)s) holds the probe %(probe)s again"),
    gettext_noop("hung: %(said)s"),
    gettext_noop("requests running %(count)s, nothing moved since %(since)s UTC"),
    gettext_noop("and %(count)s ranks more"),
    # Of the machine.
    gettext_noop("this machine will be taken away%(when)s"),
    gettext_noop("this machine will be taken away%(when)s: %(said)s"),
    gettext_noop(" in %(seconds)s s, at %(at)s UTC"),
    gettext_noop("AWS will %(what)s it"),
    gettext_noop("Azure will %(what)s it"),
    gettext_noop("Google Cloud preempts it"),
    gettext_noop("%(path)s says so"),
    gettext_noop("this machine stays after all"),
    gettext_noop("this machine stays after all: %(setting)s no longer says that it will be taken away"),
    # What services tell.
    gettext_noop("The receiver %(receiver)s takes no messages"),
    gettext_noop("%(count)s attempts failed one after the other, the last: %(words)s"),
    gettext_noop("%(cause)s is not repaired: %(said)s"),
    # Whose turn it is to let an engine go.
    gettext_noop("its node, which is about to end it"),
    gettext_noop("rollout %(id)s"),
    gettext_noop("remediation %(id)s"),
    gettext_noop("retired version %(id)s"),
)
