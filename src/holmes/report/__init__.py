"""Reports: pages of tables and figures about runs. `figures` draws them from plain numbers, without torch."""
