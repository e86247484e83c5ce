"""DreamPRVR's terms, against loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from holmes.losses.text_structure import text_structure_loss
from small import embedded


@pytest.mark.parametrize("spare", [0, 2])
def test_the_structure_of_queries_by_loops(spare):
    """A video with a single query has no partner: its query is compared with, but has no term."""
    world = embedded(2, (3, 1, 2), spare_queries=spare)
    unit = world.queries / np.linalg.norm(world.queries, axis=1, keepdims=True)
    terms = []
    for i in range(6):
        others = [j for j in range(6) if j != i]
        everyone = math.log(sum(math.exp(unit[i] @ unit[j] / 0.2) for j in others))
        partners = [j for j in others if world.owner[j] == world.owner[i]]
        if partners:
            terms.append(np.mean([everyone - unit[i] @ unit[j] / 0.2 for j in partners]))
    query_QD = world.query.query_QD.clone().requires_grad_()
    ours = text_structure_loss(query_QD, world.owners.owner_Q, world.owners.mask_Q, 0.2)
    assert len(terms) == 5 and ours.item() == pytest.approx(np.mean(terms), rel=1e-5)
    ours.backward()
    assert torch.isfinite(query_QD.grad).all() and (query_QD.grad[6:] == 0).all()


def test_queries_without_partners_cost_nothing():
    query_QD = torch.randn(3, 4, requires_grad=True)
    for mask in ([True, True, True], [True, False, False]):
        loss = text_structure_loss(query_QD, torch.tensor([0, 1, 2]), torch.tensor(mask), 0.1)
        loss.backward()
        assert loss.item() == 0 and torch.isfinite(query_QD.grad).all()
