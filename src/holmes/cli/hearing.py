"""Options that say which words of videos are made searchable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from holmes.cli.options import with_options
from holmes.errors import HolmesError, missing_packages

if TYPE_CHECKING:
    from holmes.heard.hearing import Hearing


@dataclass(frozen=True)
class HearingOptions:
    """What is recognised, and what is not."""

    speech: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER_OR_NAME",
            help="A Whisper model of CTranslate2's form, for other languages.",
            show_default="tiny.en",
        ),
    ] = None
    no_speech: Annotated[bool, typer.Option("--no-speech", help="Do not recognise speech.")] = False
    no_screen_text: Annotated[bool, typer.Option("--no-screen-text", help="Do not read text on screen.")] = (
        False
    )
    no_subtitles: Annotated[bool, typer.Option("--no-subtitles", help="Leave subtitles alone.")] = False

    def hearing(self, asked: bool = False) -> Hearing | None:
        """What to listen for: everything that can be recognised here, less what was switched off.

        None where nothing is to be heard. `asked` is for commands that do nothing else.
        """
        from holmes.heard import screen, speech
        from holmes.heard.hearing import Hearing

        if self.speech is not None and self.no_speech:
            raise HolmesError("--speech and --no-speech contradict each other; leave one out.")
        chosen = Hearing.default()
        if chosen is None and (asked or self.speech is not None):
            chosen = Hearing.available()
        if chosen is None:
            return None
        if asked and not self.no_speech and not speech.is_installed():
            raise missing_packages("recognising speech (or add --no-speech)", *speech.PACKAGES)
        if asked and not self.no_screen_text and not screen.is_installed():
            raise missing_packages("reading text on screen (or add --no-screen-text)", *screen.PACKAGES)
        wanted = Hearing(
            subtitles=not self.no_subtitles,
            speech="" if self.no_speech else self.speech or chosen.speech,
            screen=chosen.screen and not self.no_screen_text,
        )
        if asked and not wanted.any:
            raise HolmesError("nothing is left to be heard; leave out one of the --no-… options.")
        return wanted if wanted.any else None


def hearing_command(command: Callable[..., None]) -> Callable[..., None]:
    """A command `f(words: HearingOptions, …)` as typer takes it."""
    return with_options(command, HearingOptions)
