"""The data of a report: what its page shows of a run, gathered for the figures of `plots`."""
