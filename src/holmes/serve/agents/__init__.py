"""An index for agents: the tools of the Model Context Protocol."""
