"""The two-tower model: declared negatives, exact correction, guarded geometry.

The only importer of TensorFlow and TensorFlow Recommenders. Importing this package loads neither;
`recsys_cg.model.frameworks` does, behind the version check of `recsys_cg.model.environment`.
"""

from __future__ import annotations
