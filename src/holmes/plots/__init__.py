"""Figures from plain numbers, and the page that holds them. No torch anywhere."""
