"""Videos into an index: found, recognised, extracted, cut into parts and scenes, embedded, added."""
