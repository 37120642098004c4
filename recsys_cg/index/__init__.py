"""Nearest neighbours among item vectors: exact search and ScaNN under one contract. The only importer of ScaNN."""
