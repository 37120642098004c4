"""Two-tower candidate generation: datasets by Beam, training by TFRS, releases searched by ScaNN.

Importing this package loads no TensorFlow, no Beam and no ScaNN.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
