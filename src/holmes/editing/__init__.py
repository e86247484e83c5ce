"""Search results for other programs: timelines, markers, clips as files, chapters."""
