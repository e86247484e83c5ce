"""A player on this machine, opened at a moment."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from holmes.errors import HolmesError

# Program → its arguments for a file and a second, the best program first. The last ones know no seconds.
PLAYERS: dict[str, Callable[[str, float], list[str]]] = {
    "mpv": lambda file, second: [f"--start={second:.3f}", "--", file],
    "vlc": lambda file, second: [f"--start-time={second:.3f}", "--", file],
    "ffplay": lambda file, second: ["-loglevel", "error", "-ss", f"{second:.3f}", "-i", file],
    "xdg-open": lambda file, second: [file],
    "open": lambda file, second: [file],
}


def player_command(file: str, second: float) -> list[str]:
    """The command that plays a file from a second on, with the first player that is installed."""
    for name, arguments in PLAYERS.items():
        if found := shutil.which(name):
            return [found, *arguments(file, second)]
    raise HolmesError(f"there is no player; install one of {', '.join(list(PLAYERS)[:3])}.")


def play(video: str, second: float) -> None:
    """Open a player, and wait until it is closed."""
    file = Path(video)
    if not file.is_absolute() or not file.is_file():
        raise HolmesError(f"{video} is gone; it can be found, but not played.")
    command = player_command(str(file), second)
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), f"code {done.returncode}")
        raise HolmesError(f"{command[0]} could not play it ({last.strip()}); install mpv or vlc.")
