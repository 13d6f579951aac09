"""The proof that a person knows their present password, before they may change it. Guesses count as those at log-in."""

from __future__ import annotations

from datetime import timedelta

from controlplane.core.models import User
from controlplane.web.throttle import begin_attempt, forget_failures


class WrongPassword(Exception):
    pass


class TooManyGuesses(Exception):
    def __init__(self, wait: timedelta) -> None:
        super().__init__(wait)
        self.wait = wait


def prove(user: User, address: str, password: str) -> None:
    """Not within a unit of work: what it counts must stay when that is taken back.

    Raises WrongPassword; TooManyGuesses, and then the password was not looked at.
    """
    wait = begin_attempt(user.username, address)
    if wait is not None:
        raise TooManyGuesses(wait)
    if not user.check_password(password):
        raise WrongPassword
    forget_failures(user.username, address)
