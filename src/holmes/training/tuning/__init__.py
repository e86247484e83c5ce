"""The search for settings: start with `search.py`."""
