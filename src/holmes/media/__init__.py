"""Videos to features: reading, encoders behind one protocol, resumable extraction."""
