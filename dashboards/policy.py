"""The page's content security policy: that of all pages, and the styles that Dash's bundles put into the page."""

from __future__ import annotations

from controlplane.core.middleware import POLICY

# SHA-256 of the texts of <style> elements that the scripts of dash 4.4.1 make; the first is that of a new, empty one. A
# browser says the hash of a text that it refuses, and so does the browser test after an upgrade.
STYLE_HASHES = (
    "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    "Do5Z9ZqsPvCQTUBQS9BnDm/2+on7omuzuLYk5sbA+2s=",
    "ITR5T9OwskhdqdsliUJRmgp9ltOFAHgXe1F7eRvGnmQ=",
    "0IJGrxhCP5NUIafylLkj5118xkZH1kp5FmNio7NOckI=",
    "Z8VokGxeiKThZOEmkdUgfW+jxbvItBwAXC8M1c4wqAM=",
    "VUA+tqvhK3niMn7AdszqidMFPRh9FLqxB2iINUrsiTw=",
    "Aq43X0SlmB69maWGob4rp/UuSHhwePalkRRExtsxOJ8=",
    "SkhFDxgIcEjMhRh19uSHWrkdnAlZ9rlskgr9yLsipa8=",
    "uDiOZWps1U7E8/0BTaQrclYMhVhRVE4dT0vb5X6nXOw=",
    "+QoPrsxO0auPnxSulD3bAr9CoDGgzv7YRfYE0vfxeQI=",
    "MJs2ke1SA6Cy3tTCZu2QH0rj0r//iNqU0idy9bM4leg=",
    "X2TqJwnIiE/ceDVeAdr7v7BOWBU6CEzE6qxlNzBzvBk=",
    "ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o=",
)
PAGE_POLICY = POLICY.replace(
    "style-src 'self'", " ".join(["style-src 'self'", *(f"'sha256-{each}'" for each in STYLE_HASHES)])
)
