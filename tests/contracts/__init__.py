"""Contracts that every implementation of a protocol passes by inheriting its test class."""
