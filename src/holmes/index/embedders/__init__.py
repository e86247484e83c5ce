"""The models behind indexes."""
