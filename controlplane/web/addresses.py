"""How names stand in the addresses of pages."""

from __future__ import annotations

_SLASH = "~"


class ModelNameConverter:
    """A model's name, which may hold slashes and no tilde, as one step of a path."""

    regex = "[^/]+"

    def to_python(self, step: str) -> str:
        return step.replace(_SLASH, "/")

    def to_url(self, name: str) -> str:
        return name.replace("/", _SLASH)
