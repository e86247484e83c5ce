"""Confidence: how sure an answer is, and the proof that it is true."""
