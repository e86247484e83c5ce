"""Worlds made on purpose, with known answers: planted as features, rendered as video files."""
