"""Optimal transport between a video's clips and its queries."""
