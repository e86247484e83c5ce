"""What every part uses: files, locks, manifests, validation, progress, devices."""
