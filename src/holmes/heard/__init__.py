"""The spoken and written words of a video: subtitles, recognised speech and text on screen, as passages."""
