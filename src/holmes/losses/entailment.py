"""HLFormer's entailment: a query lies within the cone of its video on the hyperboloid (Li et al., ICCV 2025).

Q queries, V videos, D width; points are given by their space parts
"""

from __future__ import annotations

from torch import Tensor

from holmes.losses.objective import LossInputs
from holmes.losses.reduce import masked_mean

LEAST_RADIUS = 0.2  # within it a cone is a half space
TINY = 1e-8


def entailment_term(inputs: LossInputs) -> Tensor:
    """`entailment_loss` of a batch, between the points that the encoder gives."""
    video, owners = inputs.video.extra, inputs.owners
    return entailment_loss(
        video["point"], inputs.query.extra["point"], video["curvature"], owners.owner_Q, owners.mask_Q
    )


def entailment_loss(
    video_VD: Tensor, query_QD: Tensor, curvature_V: Tensor, owner_Q: Tensor, mask_Q: Tensor
) -> Tensor:
    """mean over queries of [angle - aperture]₊."""
    video_QD, curvature_Q = video_VD[owner_Q], curvature_V[owner_Q]
    angle_Q = exterior_angle(video_QD, query_QD, curvature_Q)
    excess_Q = (angle_Q - half_aperture(video_QD, curvature_Q)).clamp(min=0)
    return masked_mean(excess_Q.float(), mask_Q)


def half_aperture(point_QD: Tensor, curvature_Q: Tensor) -> Tensor:
    """arcsin(.2 / (√κ|x|)): how wide the cone behind a point is. Far from the origin it is narrow."""
    # In float64: the bounds 1 ± 1e-8 do not exist in float32, and at 1 the gradient would be infinite.
    length_Q = point_QD.double().norm(dim=-1)
    sine_Q = LEAST_RADIUS / (curvature_Q.double().sqrt() * length_Q + TINY)
    return sine_Q.clamp(-1 + TINY, 1 - TINY).asin()


def exterior_angle(video_QD: Tensor, query_QD: Tensor, curvature_Q: Tensor) -> Tensor:
    """The angle at x, outside the triangle of the origin, the video x and the query y."""
    video_QD, query_QD, curvature_Q = video_QD.double(), query_QD.double(), curvature_Q.double()
    squared_Q = video_QD.square().sum(-1)
    video_time_Q = (1 / curvature_Q + squared_Q).sqrt()
    query_time_Q = (1 / curvature_Q + query_QD.square().sum(-1)).sqrt()
    product_Q = curvature_Q * ((video_QD * query_QD).sum(-1) - video_time_Q * query_time_Q)
    sides_Q = squared_Q.clamp(min=TINY**2).sqrt() * (product_Q.square() - 1).clamp(min=TINY).sqrt()
    cosine_Q = (query_time_Q + product_Q * video_time_Q) / (sides_Q + TINY)
    return cosine_Q.clamp(-1 + TINY, 1 - TINY).acos()
