"""Evaluation: how often the right video is found, how well the moment is, and how sure we may be."""
