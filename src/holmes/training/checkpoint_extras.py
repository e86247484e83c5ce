"""What a checkpoint remembers beside its weights: where training stood, and what it has learnt from."""

from __future__ import annotations

from dataclasses import asdict

from holmes.data.store import Split, Store
from holmes.data.words import telling_words
from holmes.encoders.checkpoint import ENCODERS, TRAINING_SECONDS, WORDS
from holmes.results import Json
from holmes.training.resume import Progress


def extras_of(progress: Progress, store: Store, fit: Split) -> Json:
    return {
        "epoch": progress.best_epoch,
        "select_SumR": progress.best_sum,
        TRAINING_SECONDS: store.usual_seconds(fit),
        WORDS: telling_words([store.captions[query] for query in fit.queries]),
        ENCODERS: asdict(store.info.encoders),
    }
