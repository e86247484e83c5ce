"""What tells the members of a group apart: a thing that can be seen in the moment of one, and of no other.

A member gets a word that is among those that fit its moment best, and that fits it better than the collection
as a whole and better than any other member's moment. Fits are measured in deviations over the collection, so
that a word which fits everything a little tells nothing.

G members of a group, W words, D width
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holmes.index.answer.appearance import SHORTEST, Rows, Sketch, unit
from holmes.index.answer.common_sentences import THINGS
from holmes.index.embedders.protocol import Embedder

BEST = 3  # words to choose from for each member
SEEN = 1.0  # deviations above the usual fit
APART = 1.0  # deviations above the fit to any other member


@dataclass(frozen=True)
class Words:
    """Words as a model reads them, and how well each usually fits."""

    texts: tuple[str, ...]
    rows_WD: Rows
    usual_W: Rows
    deviation_W: Rows

    def tell_apart(self, looks_GD: Rows) -> list[str | None]:
        """For each member of a group, a word that is true of it alone, as far as the model can see."""
        plain_GW = looks_GD @ self.rows_WD.T
        fit_GW = (plain_GW - self.usual_W) / self.deviation_W
        highest_2W = np.sort(fit_GW, axis=0)[:-3:-1]
        others_GW = np.where(fit_GW == highest_2W[0], highest_2W[1], highest_2W[0])
        among_best_GW = plain_GW >= np.sort(plain_GW, axis=1)[:, -BEST:][:, :1]
        lead_GW = np.where(among_best_GW & (fit_GW >= SEEN), fit_GW - others_GW, -np.inf)
        best_G = lead_GW.argmax(axis=1)
        return [
            self.texts[best] if lead_W[best] >= APART else None
            for best, lead_W in zip(best_G, lead_GW, strict=True)
        ]


def learn_words(embedder: Embedder, sample: Sequence[Sketch]) -> Words:
    """How well words fit pieces of some of a collection's videos."""
    texts = embedder.words or THINGS
    rows_WD = unit(embedder.queries(texts).query_QD.float().cpu().numpy())
    fit_NW = np.concatenate([sketch.pieces_PD for sketch in sample]) @ rows_WD.T
    return Words(texts, rows_WD, fit_NW.mean(axis=0), fit_NW.std(axis=0).clip(min=SHORTEST))
