"""Training: start with `run.py`."""
