"""Tests of recsys_cg.serving."""
