"""Pages of tables and figures about runs. `figures` draws from plain numbers, without torch."""
