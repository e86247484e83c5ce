"""Typed settings, the presets of the paper's data sets, and its ablations."""
