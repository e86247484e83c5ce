"""Numbers whose sums of products are exact, so that a score is the same wherever it is computed.

Stored rows are float16: multiples of 2^-24. Queries are rounded to multiples of 2^-28, which changes only
those numbers of float32 that are below 2^-5. A product is then a multiple of 2^-52, and for vectors of length
1 every partial sum stays below 2: 53 bits, which float64 holds. So a similarity has no rounding error in any
order of summation, on a CPU or a GPU, alone or in a batch, in one index or in shards of it. Weights, and
similarities before they are weighted, are rounded to multiples of 2^-26 for the same reason.
"""

from __future__ import annotations

from torch import Tensor

QUERY_STEP, WEIGHT_STEP = 2.0**-28, 2.0**-26


def on_grid(numbers: Tensor, step: float) -> Tensor:
    """The nearest multiples of a power of two."""
    return (numbers / step).round() * step
