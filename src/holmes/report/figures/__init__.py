"""Figures drawn from plain numbers, and the page that contains them, without torch."""
