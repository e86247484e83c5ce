"""What makes a better model than the published one? Candidates against the full method, seed by seed.

    python benchmarks/recipes.py [--data DATA] [--seeds 0,1,2] [--workers 8] [--device auto] [--json FILE]

Every figure is of training videos that were held out (a quarter, another one for each seed); the test split
is not looked at. Candidates that needed code of their own and were dropped are in docs/recipes.md.
"""

from __future__ import annotations

import torch
from method import study

from holmes.config.ablations import FULL, Ablation
from holmes.training.protocol import Protocol

HELD_OUT = 0.25
CHANGES = {
    "InfoNCE on cosines, weight .5": {"contrastive_cosine": 0.5},
    "InfoNCE on cosines, weight 1": {"contrastive_cosine": 1.0},
    "dropout .4": {"dropout": 0.4},
    "InfoNCE on cosines .5, dropout .4": {"contrastive_cosine": 0.5, "dropout": 0.4},
    "InfoNCE on cosines 1, dropout .4": {"contrastive_cosine": 1.0, "dropout": 0.4},
}
ROWS = (
    Ablation(FULL.row, FULL.title, {"held_out": HELD_OUT}),
    *(
        Ablation(-20 - place, title, {"held_out": HELD_OUT, **changes})
        for place, (title, changes) in enumerate(CHANGES.items())
    ),
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    study(__doc__, ROWS, "recipes.json", Protocol.HONEST)
