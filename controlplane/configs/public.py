"""The configuration as people may see it: without the engines' API keys, which stay encrypted in the database."""

from __future__ import annotations

from typing import Any

from wire.canonical import Document

ENCRYPTED_KEY = "api_key_encrypted"
HIDDEN = "(hidden)"


def public_form(document: Document) -> Document:
    """A whole configuration or a merge patch of one, each engine's key replaced by a word. Nothing else is copied."""
    engines = document.get("engines")
    if not isinstance(engines, dict):
        return document
    return {**document, "engines": {name: _public_engine(engine) for name, engine in engines.items()}}


def _public_engine(engine: Any) -> Any:
    if not isinstance(engine, dict) or ENCRYPTED_KEY not in engine:
        return engine
    shown = {field: value for field, value in engine.items() if field != ENCRYPTED_KEY}
    # In a patch null says that the key was removed.
    shown["api_key"] = None if engine[ENCRYPTED_KEY] is None else HIDDEN
    return shown
