"""Add videos to an index: find, identify, extract, cut into parts and scenes, embed."""
