"""What the time line of an incident says."""

from __future__ import annotations

from django.utils.translation import gettext_noop

FORMS = (
    # What is drawn beside one.
    gettext_noop("%(engine)s: requests"),
    gettext_noop("%(engine)s: KV cache"),
    gettext_noop("%(node)s: GPU temperature"),
    # What its rule and its detector see.
    gettext_noop("the rule's condition holds since %(since)s UTC, value %(value)s"),
    gettext_noop("the rule's condition no longer holds"),
    gettext_noop("its rule was deleted by %(who)s: %(reason)s"),
    gettext_noop("its rule was changed by %(who)s: %(reason)s"),
    gettext_noop("found since %(since)s UTC, confidence %(percent)s %%"),
    gettext_noop("its detector sees the place clear"),
    gettext_noop("the fault is over, or is being repaired again"),
    gettext_noop("its node reports it well again"),
    gettext_noop("it takes messages again"),
    gettext_noop("not seen again since %(since)s UTC"),
    gettext_noop("%(severity)s becomes %(new_severity)s"),
    # What people did.
    gettext_noop("resolved by %(who)s: %(reason)s"),
    gettext_noop("acknowledged by %(who)s: %(reason)s"),
    gettext_noop("assigned to %(whom)s by %(who)s: %(reason)s"),
    gettext_noop("assigned to nobody by %(who)s: %(reason)s"),
    gettext_noop("%(snooze)s by %(who)s: %(reason)s"),
    gettext_noop("snoozed until %(until)s UTC"),
    gettext_noop("no longer snoozed, said"),
    gettext_noop("cordoned by %(who)s: %(reason)s"),
    gettext_noop("uncordoned by %(who)s: %(reason)s"),
    gettext_noop("the node was removed by %(who)s: %(reason)s"),
    gettext_noop("the engine was %(gone)s by %(who)s: %(reason)s"),
    # What the cordon policy did.
    gettext_noop("the node was cordoned already"),
    gettext_noop("the node was cordoned already: %(words)s"),
    gettext_noop("policy is off"),
    gettext_noop("refused: %(said)s"),
    gettext_noop("node %(node)s is cordoned by the policy"),
    gettext_noop("of pool %(pool)s the class %(class)s may fill %(percent)s %%, no more %(was)s %%"),
    gettext_noop(
        "the policy cordoned %(count)s other nodes within %(seconds)s s and may cordon %(most)s of %(nodes)s "
        "(%(percent)s %%, at least %(least)s); decide by hand"
    ),
    # Who was told.
    gettext_noop("%(receiver)s was told that it is %(standing)s, in %(attempts)s"),
    gettext_noop("%(receiver)s could not be told that it is %(standing)s, in %(attempts)s: %(words)s"),
    gettext_noop("1 attempt"),
    gettext_noop("%(count)s attempts"),
    gettext_noop("nobody is told: %(names)s"),
)
