"""Runs looked at again: found in their folders, evaluated, compared, their confidence measured."""
