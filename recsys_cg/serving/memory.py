"""Give memory that nothing holds back to the operating system."""

from __future__ import annotations

import ctypes

import pyarrow as pa

__all__ = ["return_unused"]


def return_unused() -> None:
    """Return what Arrow's pool and the C library keep of what was freed.

    Opening a release frees several times what it keeps, in small pieces. Left alone, a service that changes its release
    every few minutes grows with each. Where the C library is not glibc its own part is left as it is.
    """
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
