"""The names that settings may take, built in or added with `holmes.extend`."""

from __future__ import annotations

from pathlib import Path

from holmes.errors import unknown

BUILT_IN_ENCODERS = ("mixture", "gmmformer", "ms_sl", "gmmformer_v2", "hlformer", "dreamprvr")
# Terms of the baselines' objectives, and the encoder whose embeddings a term reads; None for any.
ENCODER_OF_LOSS = {
    "matching": None,
    "entailment": "hlformer",
    "text_structure": None,
    "register_kl": "dreamprvr",
    "denoising": "dreamprvr",
}
NAMES: dict[str, list[str]] = {
    "model.encoder": [*BUILT_IN_ENCODERS],
    "evidence.form": ["sharp", "bounded"],
    "alignment.kind": ["flexible", "plain", "softmax", "best_clip"],
    "loss.extra": [*ENCODER_OF_LOSS],
}
FILES: list[Path] = []  # files that add names, for child processes to run too


def require_known(setting: str, name: str) -> None:
    if name not in NAMES[setting]:
        raise unknown(f"value of {setting}", name, NAMES[setting])


def extra_losses(entries: tuple[str, ...]) -> dict[str, float]:
    """`name:weight` entries of `loss.extra` as a dictionary; a name alone has the weight 1."""
    found = {}
    for entry in entries:
        name, _, weight = entry.partition(":")
        require_known("loss.extra", name)
        try:
            found[name] = float(weight or 1)
        except ValueError:
            raise unknown(f"weight of {name}", weight, ["a number, such as 0.1"]) from None
    return found
