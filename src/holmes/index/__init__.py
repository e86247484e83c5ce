"""The embeddings of a video collection on disk, and exact search in them."""
