"""The exact nearest videos of a query: int8 codes, a scan with bounds, exact scores."""
