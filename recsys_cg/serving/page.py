"""The page for people at ``/``: one self-contained file, no build step, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources

__all__ = ["page_headers", "page_html"]


@cache
def page_html() -> bytes:
    """Return the page."""
    return resources.files("recsys_cg.serving").joinpath("page.html").read_bytes()


@cache
def page_headers() -> dict[str, str]:
    """Return headers under which the page runs its own script and style, talks to this service, and nothing else."""
    policy = {
        "default-src": "'none'",
        "script-src": _hashes(rb"<script>(.*?)</script>"),
        "style-src": _hashes(rb"<style>(.*?)</style>"),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-cache",
    }


def _hashes(pattern: bytes) -> str:
    blocks = re.findall(pattern, page_html(), re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(block).digest()).decode()}'" for block in blocks)
