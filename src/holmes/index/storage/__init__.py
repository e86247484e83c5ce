"""An index on disk: segments, a manifest, snapshots. Replacing the manifest commits a change."""
