"""Shared code: files, locks, manifests, validation, progress, devices."""
