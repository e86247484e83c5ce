"""Fixtures that several tests of this folder share."""

from benchmark_command import command  # noqa: F401
