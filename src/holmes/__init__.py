"""Holmes finds the video that contains a moment, from one sentence, and says how sure it is."""

__version__ = "0.1.0"
