"""Encoders: sentences and videos to vectors in one space."""
