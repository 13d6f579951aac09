"""What people of some tenants may write: their keys, and lower limits. A step of every unit of work, so of every door.

Raising a limit takes from the others' share of the fleet, so it is for someone who answers for all of them. For the
same reason weight, models, classes and `blocked` are not theirs: who was blocked must not unblock itself.
"""

from __future__ import annotations

from controlplane.core import api_tokens, users
from controlplane.core.changes import Change, UnitOfWork
from controlplane.core.scope import of_a_tenant, tenant_scope
from controlplane.tenants.own_limits import refuse_raises
from controlplane.tenants.services import keys
from controlplane.tenants.services.tenants import TENANTS


def stay_in_scope(unit: UnitOfWork) -> None:
    """Raise Forbidden where an actor of some tenants has changed more than they may (`tenant_scope`, `scope_raise`)."""
    tenants = unit.actor.tenants
    if tenants is None:
        return
    for change in unit.changes:
        if not _is_theirs(change, tenants):
            raise tenant_scope(tenants)
        if change.noun == TENANTS.noun:
            refuse_raises(change.before or {}, change.after or {})


def _is_theirs(change: Change, tenants: frozenset[str]) -> bool:
    if change.noun == TENANTS.noun:
        # Neither made nor deleted by its own people.
        return change.key in tenants and change.action == "update"
    if change.noun == keys.NOUN or change.noun in of_a_tenant:
        return all(form is None or form["tenant"] in tenants for form in (change.before, change.after))
    # Tokens and log-ins of their own: the routes let nobody below an admin of the whole fleet reach another's.
    return change.noun in (api_tokens.NOUN, users.NOUN)
