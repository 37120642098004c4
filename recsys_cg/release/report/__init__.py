"""The release report for people: an HTML page, a Markdown summary, and a page over all releases."""

from __future__ import annotations

from recsys_cg.release.report.html import render_history, render_html
from recsys_cg.release.report.markdown import render_markdown

__all__ = ["render_history", "render_html", "render_markdown"]
