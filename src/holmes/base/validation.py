"""Validate values from files field by field, and turn them into typed records.

A file may be damaged, written by another version, or made to do harm. So nothing that a file says is used
before it has been through here: it has its type, it lies within its bounds, and there is nothing in it that
was not asked for. What is wrong becomes one line with the key, the value and what was expected.

A record is a frozen dataclass whose hints may be numbers, text, bool, Literal, an Enum, unions with None,
tuples, lists, dictionaries, other dataclasses, `Any` for plain JSON, and `Annotated` with bounds.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from dataclasses import MISSING, dataclass, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from holmes.base.printing import shown
from holmes.errors import HolmesError, unknown

T = TypeVar("T")
LARGEST_COUNT = 2**53  # every reader of JSON agrees on whole numbers up to here
LONGEST_TEXT = 1 << 16  # characters, where nothing else is said
DEEPEST = 32  # levels of plain JSON


@dataclass(frozen=True)
class Within:
    """Bounds of a number, both allowed."""

    least: float
    most: float

    def __str__(self) -> str:
        return f"between {self.least:g} and {self.most:g}"


@dataclass(frozen=True)
class Matching:
    """Text of a certain form, and that form in words."""

    pattern: str
    words: str


@dataclass(frozen=True)
class Infinite:
    """A number without bounds must still be finite."""


@dataclass(frozen=True)
class AtMost:
    """The largest a number, the longest a text, the most entries a tuple, list or dictionary may have."""

    size: int


Count = Annotated[int, Within(0, LARGEST_COUNT)]
Size = Annotated[int, Within(1, LARGEST_COUNT)]
Sha256 = Annotated[str, Matching(r"[0-9a-f]{64}", "a SHA-256 in hexadecimal")]
# Becomes a part of a path: it must stay where it is put.
PlainName = Annotated[str, Matching(r"(?!\.\.?\Z)[^/\0]{1,200}", "a plain name (no '/', not '..')")]


class _WrongError(Exception):
    def __init__(self, keys: tuple[str, ...], value: Any, expected: str) -> None:
        super().__init__(f"{dotted(keys) or 'it'} is {shown(value)}, not {expected}")


def build(kind: type[T] | Any, value: Any, where: str = "") -> T:
    """`value`, as JSON gives it, as a `kind`. `where` is the key under which it stands."""
    try:
        built: T = _convert(kind, value, (where,) if where else ())
    except _WrongError as error:
        raise HolmesError(f"{error}.") from None
    return built


def dotted(keys: tuple[str, ...]) -> str:
    return ".".join(shown(key, quoted=False) for key in keys)


def _convert(hint: Any, value: Any, keys: tuple[str, ...]) -> Any:
    if hint is str or hint is int or hint is float or hint is bool:  # first: most values are
        return _plain(hint, value, keys)
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if Infinite() in options and value in (math.inf, -math.inf):
            return value
        converted = _convert(options[0], value, keys)
        for limit in options[1:]:
            _refuse_beyond(limit, converted, keys)
        return converted
    if is_dataclass(hint):
        return _record(hint, value, keys)
    if origin is Literal:
        return _one_of(options, value, keys)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in options:
            return None
        (only,) = (option for option in options if option is not type(None))
        return _convert(only, value, keys)
    if origin is tuple and options[-1] is not Ellipsis:
        if not isinstance(value, list | tuple) or len(value) != len(options):
            raise _WrongError(keys, value, f"a list of {len(options)}")
        pairs = zip(options, value, strict=True)
        return tuple(_convert(option, item, (*keys, str(at))) for at, (option, item) in enumerate(pairs))
    if origin in (tuple, list):
        if not isinstance(value, list | tuple):
            raise _WrongError(keys, value, "a list")
        return origin(_convert(options[0], item, (*keys, str(at))) for at, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise _WrongError(keys, value, "an object")
        return {
            _convert(options[0], key, keys): _convert(options[1], item, (*keys, key))
            for key, item in value.items()
        }
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(_one_of(tuple(member.value for member in hint), value, keys))
    if hint is Any:
        _refuse_depth(value, keys)
        return value
    raise TypeError(f"nothing is known of values that are {hint}")


def _plain(hint: Any, value: Any, keys: tuple[str, ...]) -> Any:
    """The value if it has exactly the type: a bool is not a number, and neither is a text."""
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str:
        return _text(value, keys)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            if math.isfinite(value):
                return float(value)
        except OverflowError:
            pass
    words = {bool: "true or false", int: "a whole number", float: "a finite number"}
    raise _WrongError(keys, value, words[hint])


def _text(value: Any, keys: tuple[str, ...]) -> str:
    if not isinstance(value, str):
        raise _WrongError(keys, value, "text")
    if len(value) > LONGEST_TEXT:
        raise _WrongError(keys, value, f"a text of at most {LONGEST_TEXT} characters")
    return value


def _one_of(options: tuple[Any, ...], value: Any, keys: tuple[str, ...]) -> Any:
    if not isinstance(value, str | int) or not any(value == o and type(value) is type(o) for o in options):
        raise _WrongError(keys, value, f"one of {', '.join(map(str, options))}")
    return value


def _refuse_beyond(limit: Any, value: Any, keys: tuple[str, ...]) -> None:
    if isinstance(limit, Within) and value is not None and not limit.least <= value <= limit.most:
        raise _WrongError(keys, value, str(limit))
    if isinstance(limit, Matching) and re.fullmatch(limit.pattern, value) is None:
        raise _WrongError(keys, value, limit.words)
    if isinstance(limit, AtMost):
        number = isinstance(value, int | float)
        if (value if number else len(value)) > limit.size:
            raise _WrongError(keys, value, f"at most {limit.size:,}{'' if number else ' long'}")


def _refuse_depth(value: Any, keys: tuple[str, ...], depth: int = 0) -> None:
    """Plain JSON is taken as it is, but not so deep that walking through it would run out of stack."""
    if depth > DEEPEST:
        raise _WrongError(keys[:3], value, f"at most {DEEPEST} levels deep")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_depth(item, (*keys, _text(key, keys)), depth + 1)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            _refuse_depth(item, (*keys, str(at)), depth + 1)
    elif isinstance(value, str):
        _text(value, keys)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _record(kind: Any, values: Any, keys: tuple[str, ...]) -> Any:
    hints, where = _hints(kind), dotted(keys)
    if not isinstance(values, dict):
        raise HolmesError(f"{where or 'it'} must be an object, not {shown(values)}.")
    for name in values:
        if name not in hints:
            raise unknown(f"{where} field".strip(), shown(name, quoted=False), hints)
    needed = (f for f in dataclasses.fields(kind) if f.default is MISSING and f.default_factory is MISSING)
    missing = [field.name for field in needed if field.name not in values]
    if missing:
        raise HolmesError(f"{where or 'it'} is incomplete: it lacks {', '.join(missing)}.")
    arguments = {name: _convert(hints[name], value, (*keys, name)) for name, value in values.items()}
    try:
        return kind(**arguments)
    except HolmesError as error:  # what the record itself refuses
        raise HolmesError(f"{where}: {error}" if where else str(error)) from None
