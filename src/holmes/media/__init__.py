"""From videos to features: reading, encoders, resumable extraction."""
