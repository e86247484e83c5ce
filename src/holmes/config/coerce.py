"""Settings from text: what a command line or a notebook gives, as the type that a setting has."""

from __future__ import annotations

import math
import types
import typing
from typing import Any, Literal

from holmes.errors import HolmesError, unknown


def coerce(value: Any, hint: Any, name: str) -> Any:
    """A value, or its text from a command line or JSON, as the type of a setting."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    try:
        if origin is Literal:
            if value not in options:
                raise unknown(f"value of {name}", str(value), options)
            return value
        if origin is tuple:
            items = [part for part in value.split(",") if part] if isinstance(value, str) else value
            return tuple(coerce(item, options[0], name) for item in items)
        if origin in (typing.Union, types.UnionType):
            if value is None or value in ("none", "None"):
                return None
            return coerce(value, next(option for option in options if option is not type(None)), name)
        if hint is bool:
            return {"true": True, "false": False}[str(value).lower()]
        if hint is int and float(value) != int(float(value)):
            raise ValueError
        number = int(float(value)) if hint is int else hint(value)
        if hint is float and not math.isfinite(number):
            raise ValueError
        return number
    except (ValueError, TypeError, KeyError, OverflowError):
        raise HolmesError(
            f"setting {name}: '{value}' is not a valid {getattr(hint, '__name__', hint)}."
        ) from None
