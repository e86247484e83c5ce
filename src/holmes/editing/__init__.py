"""What was found, for other programs: timelines and markers for editors, clips as files, chapters."""
