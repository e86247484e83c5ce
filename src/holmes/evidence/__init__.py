"""Similarities as evidence: Dirichlet opinions, their fusion, and what they say about a query."""
