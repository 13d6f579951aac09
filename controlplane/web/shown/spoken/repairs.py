"""What staged changes, levers of the diagnosis and repairs of nodes say of themselves."""

from __future__ import annotations

from django.utils.translation import gettext_noop

FORMS = (
    # Staged changes.
    gettext_noop("its targets run it"),
    gettext_noop("healthy"),
    gettext_noop("promoted by hand"),
    gettext_noop("taken back by hand"),
    # Levers of the diagnosis.
    gettext_noop("the finding still stands %(time)s after all ran the change"),
    gettext_noop("clear for %(time)s"),
    gettext_noop("refused by %(names)s"),
    gettext_noop("not run by %(names)s after %(time)s"),
    gettext_noop("not yet run by %(names)s"),
    gettext_noop("the finding is over"),
    gettext_noop("its detector offers it no more"),
    # Repairs.
    gettext_noop("would %(repair)s; the policy observes only"),
    gettext_noop("%(cause)s is nothing that a repair of the program's mends"),
    gettext_noop("the breaker is tripped: %(said)s"),
    gettext_noop("waits for the node to be cordoned, by a person or by the cordon policy"),
    gettext_noop("the node takes no new work"),
    gettext_noop("the node's policy does not allow %(names)s"),
    gettext_noop("waits for what holds out %(names)s"),
    gettext_noop("drains %(names)s"),
    gettext_noop("no request runs on the node"),
    gettext_noop("could not be drained: %(items)s"),
    gettext_noop("could not be repaired: %(items)s"),
    gettext_noop("looks whether all is well"),
    gettext_noop("starts the engines again"),
    gettext_noop("the fault came back: %(cause)s"),
    gettext_noop("not well after the repair: %(names)s"),
    gettext_noop("waits for %(names)s to be well"),
    gettext_noop("well again; the cordon stays for %(names)s"),
    gettext_noop("the fault has ended; nothing more is done"),
    gettext_noop("the node was uncordoned: a person's hand goes before"),
    gettext_noop("begun by %(who)s: %(reason)s"),
    gettext_noop("cancelled by %(who)s: %(reason)s"),
    gettext_noop("this node was repaired %(times)s times within seven days; %(most)s is the most without a person"),
    gettext_noop("the same fault came %(times)s times within a day; %(most)s is the most without a person"),
)
