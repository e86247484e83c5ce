"""What a video says and shows in letters: subtitles, recognised speech and text on screen, as passages."""
