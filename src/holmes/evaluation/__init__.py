"""Evaluation: how often the right video and its moment are found, with intervals."""
