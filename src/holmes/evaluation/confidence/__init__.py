"""The confidence of answers, and its evaluation."""
