"""Find the packets of a video that need no decoding, because no sample depends on them.

Only about two of twenty-five frames per second are sampled. The decoder skips a frame if it is not sampled,
and no other frame depends on it. Between the last sampled frame and the next key frame that starts afresh,
nothing is decoded. The sampled frames are identical to those of full decoding.

Packets come in decoding order, so the next frame on the screen is known only a few packets later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from holmes.media.containers import LARGEST_GAP

REORDERED = 17  # packets after which all frames shown earlier have come: decoders hold at most 16
AHEAD = 128  # packets looked ahead to the next fresh start
BYTES_AHEAD = 2**26  # bytes of them, however large each is
HEAD = 2**12  # bytes of a packet in which its first slice begins

Shows = Callable[[float, float], bool]  # whether a sample's moment lies between two times of the file


@dataclass(eq=False)
class _Planned:
    packet: Any
    start: float  # seconds, by the file's own clock
    fresh: bool
    end: float | None = None  # when the next frame is shown; None until that is known
    dropped: bool = False


class SampledPackets:
    """The packets of `stream` that are to be decoded, each with whether a sample shows its frame.

    `stop` ends the planning, where frames turn out not to be what their packets say; all that follows is
    decoded then.
    """

    def __init__(self, packets: Iterator[Any], stream: Any, shows: Shows) -> None:
        self._packets, self._shows, self._plans = packets, shows, True
        self._slices = _Slices(stream.codec_context)
        self._tick = float(stream.time_base or 0)  # seconds; with 0 every frame counts as shown
        self._ahead: deque[_Planned] = deque()
        self._recent: deque[float] = deque(maxlen=2 * REORDERED + 1)  # when frames are shown, as they come
        self._last_dts: int | None = None

    def stop(self) -> None:
        self._plans = False

    def __iter__(self) -> Iterator[tuple[Any, bool]]:
        size, error = 0, None
        while True:
            try:
                packet = next(self._packets)
            except StopIteration:
                break
            except Exception as fault:  # what was read before it comes first
                error = fault
                break
            size += packet.size
            self._ahead.append(self._plan(packet))
            if len(self._ahead) > REORDERED:
                looked_at = self._ahead[-1 - REORDERED]
                looked_at.end = min((time for time in self._recent if time > looked_at.start), default=None)
            while len(self._ahead) > AHEAD or size > BYTES_AHEAD:
                size -= self._ahead[0].packet.size
                yield from self._next()
        while self._ahead:
            yield from self._next()
        if error is not None:
            raise error

    def _plan(self, packet: Any) -> _Planned:
        pts, dts = packet.pts, packet.dts
        if pts is None or dts is None or pts < dts or not self._follows(packet):
            if packet.size:  # an empty one ends the file
                self.stop()
            return _Planned(packet, 0.0, fresh=False)
        start = pts * self._tick
        self._recent.append(start)
        return _Planned(packet, start, self._slices.is_fresh(packet))

    def _follows(self, packet: Any) -> bool:
        """Whether the timestamps have advanced as they should."""
        last, self._last_dts = self._last_dts, packet.dts
        return last is None or 0 <= (packet.dts - last) * self._tick <= LARGEST_GAP

    def _is_shown(self, planned: _Planned) -> bool:
        return planned.end is None or self._shows(planned.start, planned.end)

    def _next(self) -> Iterator[tuple[Any, bool]]:
        """The packet that is next, unless nothing needs it."""
        first = self._ahead[0]
        shown = first.dropped or not self._plans or self._is_shown(first)
        if not shown:
            self._drop_to_fresh_start()
        self._ahead.popleft()
        if not first.dropped:
            yield first.packet, shown or self._slices.in_layers

    def _drop_to_fresh_start(self) -> None:
        """Drop all up to a fresh start, and what is shown before it, if no sample shows any of that."""
        before = [self._ahead[0]]
        fresh = None
        for planned in islice(self._ahead, 1, None):
            if fresh is None and planned.fresh:
                fresh = planned
            elif fresh is None or planned.start < fresh.start:
                if self._is_shown(planned):
                    return
                before.append(planned)
            else:  # what follows is independent of all this
                for dropped in before:
                    dropped.dropped = True
                return


class _Slices:
    """Tells which packets are fresh starts; for H.264 and H.265 by the headers of their first slices."""

    def __init__(self, codec: Any) -> None:
        self._name, extra = codec.name, bytes(codec.extradata or b"")
        self._plain = codec.codec.intra_only or self._name in ("vp8", "vp9", "libvpx", "libvpx-vp9")
        self._prefix = 0  # bytes that tell the length of each unit; 0 where marks stand between them
        if extra[:1] == b"\1":
            at = {"h264": 4, "hevc": 21}.get(self._name, len(extra))
            self._prefix = (extra[at] & 3) + 1 if at < len(extra) else 0
        # Of H.265: then a frame that its own layer does not need may be needed by those above it.
        self.in_layers = False

    def is_fresh(self, packet: Any) -> bool:
        """Whether no frame that is shown after this one is built from any before it."""
        if self._plain:
            return bool(packet.is_keyframe)
        if self._name not in ("h264", "hevc"):
            return False
        for head in self._units(bytes(memoryview(packet)[:HEAD])):
            if self._name == "h264" and 1 <= (kind := head[0] & 31) <= 5:
                return kind == 5  # IDR; other key frames may only begin to refresh the picture
            if self._name == "hevc" and (kind := head[0] >> 1 & 63) <= 31:
                self.in_layers |= head[1] & 7 > 1
                return 16 <= kind <= 21  # IRAP
        return False

    def _units(self, content: bytes) -> Iterator[bytes]:
        """The first two bytes of every unit."""
        at = 0
        while self._prefix and at + self._prefix + 2 <= len(content):
            start = at + self._prefix
            yield content[start : start + 2]
            at = start + int.from_bytes(content[at:start])
        while not self._prefix and 2 < (at := content.find(b"\0\0\1", at) + 3) <= len(content) - 2:
            yield content[at : at + 2]
