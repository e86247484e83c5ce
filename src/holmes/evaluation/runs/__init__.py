"""Finished runs: found in their folders, evaluated, compared, their confidence measured."""
