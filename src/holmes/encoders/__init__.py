"""Encoders: sentences and videos into one space."""
