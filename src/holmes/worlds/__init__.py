"""Generated collections with known answers: planted as features, or rendered as video files."""
