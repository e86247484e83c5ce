"""Confidence: how sure an answer is, and the proof that this can be trusted."""
