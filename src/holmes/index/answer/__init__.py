"""From the nearest videos to an answer: moments, probabilities, words."""
