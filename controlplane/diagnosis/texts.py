"""Texts of detectors as rows keep them: in every language of the pages, made once, when they are found.

A detector's text is translated when it is read, and its numbers stand in it; so it is read once for each language.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.utils.functional import Promise
from django.utils.translation import get_language, override

# REST answers in it, whatever its caller reads.
PLAIN_LANGUAGE = "en"
Texts = dict[str, str]


def texts_of(text: Promise | str) -> Texts:
    """Language → text; where all are the same, the plain one alone."""
    found = {}
    for language, _ in settings.LANGUAGES:
        with override(language):
            found[language] = str(text)
    plain = found[PLAIN_LANGUAGE]
    return {language: said for language, said in found.items() if language == PLAIN_LANGUAGE or said != plain}


def plain(texts: Mapping[str, Any]) -> str:
    return str(texts.get(PLAIN_LANGUAGE, ""))


def in_language(texts: Mapping[str, Any]) -> str:
    """In that of the page that is made."""
    return str(texts.get(get_language() or PLAIN_LANGUAGE, plain(texts)))
