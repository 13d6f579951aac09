"""What a write may do and is worth a second look, and what cannot be found."""

from __future__ import annotations

from django.utils.translation import gettext_noop

FORMS = (
    # What a write may do, and is worth a second look.
    gettext_noop(
        "the limits of %(of_tenants)s promise %(grouped)s tokens of context in pool '%(pool)s', and its engines may "
        "hold %(held)s; tenants without a bound: %(unbounded)s; lower limits or add engines"
    ),
    gettext_noop(
        "no engine of pool '%(pool)s' takes work any more, and these routes lead to it: %(names)s; what no fallback "
        "takes is refused with 503"
    ),
    gettext_noop(
        "pool '%(pool)s' would have no engine left, and these routes lead to it: %(names)s; change the routes first, "
        "or cordon the engine"
    ),
    gettext_noop("this engine would go"),
    gettext_noop("%(count)s of %(all)s would go, more than %(percent)s %% (HEADWORKS_CONFIG_REMOVALS_PERCENT)"),
    gettext_noop("1 key would go with it"),
    gettext_noop("%(count)s keys would go with it"),
    gettext_noop("deleted with it: 1 key, for good"),
    gettext_noop("deleted with it: %(count)s keys, for good"),
    gettext_noop("no alert that fires is matched"),
    gettext_noop("%(count)s alerts that fire are matched: %(names)s"),
    gettext_noop("engine '%(engine)s' was not asked to %(action)s: %(said)s"),
    gettext_noop("there is no tenant '%(tenant)s' now; nothing is open to its people until it is made"),
    gettext_noop("it ends at %(at)s, with the token that makes it; for a longer one run headworks create-token"),
    gettext_noop("lever %(lever)s of this finding is still being verified: which of the two helped will not be known"),
    # An address of what there is not.
    gettext_noop("there is no %(noun)s '%(name)s'"),
)
