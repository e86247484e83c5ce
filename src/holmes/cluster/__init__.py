"""Sharded indexes, searched and built on a Ray cluster."""
