"""Which of the first hits show the very same moment: copies, encoded anew or cut from one film.

What is seen in the moment of one is looked for anywhere in the other, and the other way round. Looks are
compared after what all videos share is subtracted, since some encoders find everything alike.

F frames, D width
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holmes.index.looks import Rows, Sketch, View, unit

# On 90 real clips and copies of 30 of them in a far lower quality, this found half of the copies and took no
# two different clips for one.
ALIKE = 0.9
CLOSE = 0.05  # a copy scores about as much as what it is a copy of


def usual_look(sample: Sequence[Sketch]) -> Rows:
    """What the frames of some videos share."""
    mean_D: Rows = np.mean([sketch.mean_D for sketch in sample], axis=0)
    return mean_D


def show_the_same(one: View, other: View, usual_D: Rows) -> bool:
    """Whether two hits show one and the same moment."""
    one_FD, other_FD = (unit(view.rows_FD - usual_D) for view in (one, other))
    there = (one_FD[one.inside_F] @ other_FD.T).max(axis=1).mean()
    back = (other_FD[other.inside_F] @ one_FD.T).max(axis=1).mean()
    return bool(min(there, back) >= ALIKE)
