"""Rules of what may serve side by side, and what they have against the engines of each pool."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.curl import curl
from controlplane.web.shown import versions as versions_read


@page()
def compatibility(request: HttpRequest, caller: Caller) -> HttpResponse:
    body = {"rule": {"never": {"kind": "triton", "vllm": ">=0.11.2"}}, "reason": "WHY IT IS ONE", "stops": True}
    context = {
        "section": "compatibility",
        "pools": versions_read.findings_by_pool(),
        "rules": versions_read.rule_lines(),
        "curl_rules": curl(request, "GET", "/compatibility-rules"),
        "curl_pool": curl(request, "GET", "/pools/POOL/compatibility"),
        "curl_new": curl(
            request, "POST", "/compatibility-rules", query={"reason": "WHY"}, body={"name": "NAME", **body}
        ),
    }
    return render(request, "web/compatibility.html", context)
