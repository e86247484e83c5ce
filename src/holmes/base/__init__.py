"""What every part stands on: files, locks, manifests, validation, progress, devices."""
