"""FCPXML 1.9, for Final Cut Pro and DaVinci Resolve; every time is an exact fraction.

It is written here, because the adapter of opentimelineio gets the frame duration at 23.976 and 29.97 wrong.
"""

from __future__ import annotations

from fractions import Fraction
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from holmes.editing.clips import note_of, one_line
from holmes.editing.timeline import Edit, EditList, drops, first_frame

# The rates that FCPXML names for footage of another rate than the timeline's.
CONFORMED = {
    Fraction(24000, 1001): "23.98", Fraction(24): "24", Fraction(25): "25", Fraction(30000, 1001): "29.97",
    Fraction(30): "30", Fraction(48000, 1001): "47.95", Fraction(48): "48", Fraction(50): "50",
    Fraction(60000, 1001): "59.94", Fraction(60): "60",
}  # fmt: skip


def as_fcpxml(edits: EditList) -> str:
    root = Element("fcpxml", version="1.9")
    resources = _Resources(_element(root, "resources"))
    size = max(((edit.source.width, edit.source.height) for edit in edits.edits), default=(0, 0))
    own = resources.format(edits.rate, *size)
    for edit in edits.edits:
        resources.asset(edit)
    event = _element(_element(root, "library"), "event", name="Holmes")
    project = _element(event, "project", name=one_line(edits.title) or "Holmes")
    sequence = _element(
        project, "sequence", format=own, duration=_time(edits.frames, edits.rate),
        tcStart=_time(edits.first, edits.rate), tcFormat="DF" if edits.drop else "NDF",
        audioLayout="stereo", audioRate="48k",
    )  # fmt: skip
    spine = _element(sequence, "spine")
    for edit in edits.edits:
        _add_clip(spine, edit, edits, resources)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE fcpxml>\n{text}\n'


class _Resources:
    """The formats and films that clips refer to, each written once."""

    def __init__(self, parent: Element) -> None:
        self._parent = parent
        self._formats: dict[tuple[Fraction, int, int], str] = {}
        self._assets: dict[str, str] = {}

    def format(self, rate: Fraction, width: int, height: int) -> str:
        """The id of a format."""
        key = rate, width, height
        if key not in self._formats:
            self._formats[key] = f"f{len(self._formats) + 1}"
            size = {"width": str(width), "height": str(height)} if width and height else {}
            _element(self._parent, "format", id=self._formats[key], frameDuration=_time(1, rate), **size)
        return self._formats[key]

    def asset(self, edit: Edit) -> str:
        """The id of a clip's film."""
        source, video = edit.source, edit.clip.video
        if video not in self._assets:
            self._assets[video] = f"a{len(self._assets) + 1}"
            sound = {"hasAudio": "1", "audioSources": "1", "audioChannels": str(source.channels),
                     "audioRate": str(source.sample_rate)}  # fmt: skip
            asset = _element(
                self._parent, "asset", id=self._assets[video], name=edit.clip.name,
                start=_time(first_frame(source), source.rate), duration=_time(source.frames, source.rate),
                hasVideo="1", format=self.format(source.rate, source.width, source.height), videoSources="1",
                **(sound if source.channels else {}),
            )  # fmt: skip
            _element(asset, "media-rep", kind="original-media", src=edit.url)
        return self._assets[video]


def _add_clip(spine: Element, edit: Edit, edits: EditList, resources: _Resources) -> None:
    source = edit.source
    start = _time(first_frame(source) + edit.source_in, source.rate)
    clip = _element(
        spine, "asset-clip", ref=resources.asset(edit), name=edit.clip.name,
        offset=_time(edits.first + edit.record_in, edits.rate), start=start,
        duration=_time(edit.record_out - edit.record_in, edits.rate),
        format=resources.format(source.rate, source.width, source.height),
        tcFormat="DF" if drops(source) else "NDF",
    )  # fmt: skip
    if source.rate != edits.rate and source.rate in CONFORMED:
        _element(clip, "conform-rate", scaleEnabled="0", srcFrameRate=CONFORMED[source.rate])
    _element(
        clip, "marker", start=start, duration=_time(1, source.rate), value=edit.clip.title,
        note=note_of(edit.clip),
    )  # fmt: skip


def _element(parent: Element, tag: str, **attributes: str) -> Element:
    return ElementTree.SubElement(parent, tag, attributes)


def _time(frames: int, rate: Fraction) -> str:
    seconds = Fraction(frames) / rate
    if seconds.denominator == 1:
        return f"{seconds.numerator}s"
    return f"{frames * rate.denominator}/{rate.numerator}s"
