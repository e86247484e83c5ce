"""Similarities as evidence: Dirichlet opinions, their fusion, and the kinds of queries."""
