"""An index on disk: segments, a manifest whose replacement is the commit of every change, snapshots."""
