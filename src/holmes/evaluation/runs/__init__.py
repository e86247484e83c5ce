"""Finished runs: find, evaluate and compare them, and measure their confidence."""
