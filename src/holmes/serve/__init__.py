"""The web page and HTTP API of an index. FastAPI is imported only here."""
