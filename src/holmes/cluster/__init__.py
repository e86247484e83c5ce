"""Past one machine: an index in shards, searched and built on a Ray cluster."""
