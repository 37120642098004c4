"""Releases: what a release directory holds, the gates it must pass, its report, and the store that publishes it."""

from __future__ import annotations
