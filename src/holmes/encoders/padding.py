"""Padded positions: how they are told from real ones."""

from __future__ import annotations

PADDED = -10000.0  # added to the logit of a padded position, as in the published models
