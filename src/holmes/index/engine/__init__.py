"""Exact search for the nearest videos: int8 codes, a scan with bounds, exact scores."""
