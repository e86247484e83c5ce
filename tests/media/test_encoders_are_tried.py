"""An encoder is tried before it is used, and wordings that say the same give the same vector."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from holmes.errors import HolmesError
from holmes.media.backbones.base import check_reads
from holmes.media.backbones.clip import check_vocabulary
from holmes.media.backbones.pocket import Pocket


def test_an_encoder_that_reads_every_sentence_alike_is_refused() -> None:
    def encoder(rows: object) -> SimpleNamespace:
        return SimpleNamespace(sentences=lambda sentences: rows)

    check_reads(encoder(np.eye(2)), "good")
    with pytest.raises(HolmesError, match="'blind' reads every sentence alike: its tokenizer is missing"):
        check_reads(encoder(np.ones((2, 4))), "blind")

    def beyond(sentences: object) -> object:
        raise IndexError("index out of range in self")

    with pytest.raises(HolmesError, match="belongs to another model"):
        check_reads(SimpleNamespace(sentences=beyond), "wrong")


@pytest.mark.parametrize("tokens", [3, 50_000])
def test_a_tokenizer_must_fit_the_model(tokens: int) -> None:
    check_vocabulary(range(400), 49_408, "clip")
    with pytest.raises(HolmesError, match="put the model's own tokenizer into its folder"):
        check_vocabulary(range(tokens), 49_408, "clip")


@pytest.mark.parametrize("form", ["{}", "a {}", "there is a {}", "a video of a {}", "the {}"])
def test_wordings_that_say_the_same_are_read_alike(form: str) -> None:
    for noun in ("guitar", "video game", "man who plays the guitar"):
        assert Pocket.neutral_forms(form.format(noun)) == Pocket.neutral_forms(noun)
    assert Pocket.neutral_forms("guitar")[0] == "guitar"
    assert Pocket.neutral_forms("a")[0] == "a", "a sentence is never empty"
