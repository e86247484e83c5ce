"""The training objective and its parts."""
