"""Reproduce the paper's tables from the field's feature folders: find, plan, run, check, write the page."""
