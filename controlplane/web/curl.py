"""The REST call that does what a screen does, as a line for a shell. It never holds a token."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from django import forms
from django.http import HttpRequest

from controlplane.core.fields import iso


def reason_of(request: HttpRequest) -> dict[str, str]:
    """The query of a write: the reason that was typed, or a word in its place, which the page's script keeps up."""
    return {"reason": request.POST.get("reason", "").strip() or "WHY"}


def begun(form: forms.Form, names: Collection[str] = ()) -> dict[str, Any]:
    """What a form begins with, as a body of its REST call; the review has what was typed.

    `names`: of the call's fields, where those of the form are others.
    """
    return known(form.initial, names or form.fields)


def known(given: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Of `given` the fields that a call has by these names, as a body; what says nothing is left out."""
    told = {name: value for name, value in given.items() if name in names and value not in (None, "", {})}
    return {name: iso(value) if isinstance(value, datetime) else value for name, value in told.items()}


def curl(
    request: HttpRequest,
    method: str,
    path: str,
    *,
    query: Mapping[str, Any] | None = None,
    body: Mapping[str, Any] | None = None,
) -> str:
    """`path` is below `/api/v1`, such as "/tenants/acme". The shell puts the token in from HEADWORKS_TOKEN."""
    address = request.build_absolute_uri("/api/v1") + quote(path)
    if query:
        address += "?" + urlencode(query)
    parts = ['curl --fail-with-body -H "Authorization: Bearer $HEADWORKS_TOKEN"']
    if method != "GET":
        parts.append(f"-X {method}")
    if body is not None:
        parts.append("-H 'Content-Type: application/json'")
        parts.append(f"--data {shlex.quote(json.dumps(dict(body), ensure_ascii=False))}")
    return " \\\n  ".join([*parts, shlex.quote(address)])
