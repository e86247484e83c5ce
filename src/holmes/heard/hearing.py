"""Options of word extraction: subtitles, speech, text on screen."""

from __future__ import annotations

import os
from dataclasses import dataclass

from holmes.errors import HolmesError
from holmes.heard import screen, speech
from holmes.heard.screen import TextReader
from holmes.heard.speech import DEFAULT

SWITCH = "HOLMES_HEAR"  # set to 'off', nothing is heard unless it is asked for


@dataclass(frozen=True)
class Hearing:
    """What is listened for; `speech` names a Whisper model and is empty where speech is not recognised."""

    subtitles: bool = True
    speech: str = DEFAULT
    screen: bool = True

    @classmethod
    def available(cls) -> Hearing:
        """Everything whose packages are installed."""
        return cls(True, DEFAULT if speech.is_installed() else "", screen.is_installed())

    @classmethod
    def default(cls) -> Hearing | None:
        """What is heard where nobody says: everything that can be, unless the environment says 'off'."""
        return None if os.environ.get(SWITCH, "").lower() == "off" else cls.available()

    @property
    def any(self) -> bool:
        return self.subtitles or bool(self.speech) or self.screen

    def check(self) -> None:
        """Refuse what cannot be done here, before the first video."""
        if self.speech:
            speech.model_folder(self.speech)
            if not speech.is_installed():
                raise HolmesError(f"recognising speech needs: pip install {' '.join(speech.PACKAGES)}")
        if self.screen:
            _ = TextReader().identity
