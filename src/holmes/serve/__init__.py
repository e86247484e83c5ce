"""A page and an HTTP API over an open index; FastAPI is imported here and nowhere else."""
