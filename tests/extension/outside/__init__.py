"""A package of somebody else's: nothing of it is imported by recsys_cg, one module adds one part."""
