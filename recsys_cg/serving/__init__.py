"""Lookup: the in-process library and the HTTP service. Reads a release; imports no TensorFlow and no Beam.

Start at `recsys_cg.serving.lookup.CandidateLookup` in a Python process, at `recsys_cg.serving.service.serve` for the
service, at `recsys_cg.serving.client.Client` to call it.
"""
