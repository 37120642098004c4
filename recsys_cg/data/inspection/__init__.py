"""Look at a user's files and propose a project file: what `recsys-cg init` does.

A proposal is made from names and from the values of the first rows. Where a guess would be a gamble it is not made:
the error lists the columns with samples and the option that settles it.
"""

from __future__ import annotations

from recsys_cg.data.inspection.proposal import Proposal, inspect_sources
from recsys_cg.data.inspection.rendering import render_config

__all__ = ["Proposal", "inspect_sources", "render_config"]
