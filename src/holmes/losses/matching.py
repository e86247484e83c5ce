"""GMMFormerV2's matching: each query of a video is matched with its own clip (Wang et al., 2024).

V videos, M queries of one video, C clips, K columns, D width
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.losses.objective import LossInputs
from holmes.losses.reduce import masked_mean


def matching_loss(query_VMD: Tensor, clips_VCD: Tensor, mask_VM: Tensor) -> Tensor:
    """1 - mean cosine of queries and the clips assigned to them, over videos with two queries or more.

    The assignment has the largest total cosine and is taken as given: no gradient passes through it.
    """
    cosine_VMC = F.normalize(query_VMD.float(), dim=-1) @ F.normalize(clips_VCD.float(), dim=-1).mT
    cosine_VMC = cosine_VMC.float()
    wanted_VM = mask_VM & (mask_VM.sum(1, keepdim=True) > 1)
    clip_VM = best_assignment(cosine_VMC.detach(), wanted_VM)
    found_VM = clip_VM >= 0
    assigned_VM = cosine_VMC.gather(2, clip_VM.clamp(min=0).unsqueeze(2)).squeeze(2)
    return torch.where(found_VM.any(), 1 - masked_mean(assigned_VM, found_VM), 0.0)


def matching_term(inputs: LossInputs, clips: int) -> Tensor:
    """`matching_loss` of a batch; `clips` of the positions follow the video from start to end."""
    clips_VCD = inputs.video.clips_VCD[:, :clips]
    query_VMD, mask_VM = inputs.owners.by_video(inputs.query.query_QD, len(clips_VCD))
    return matching_loss(query_VMD, clips_VCD, mask_VM)


@torch.no_grad()
def best_assignment(score_VMC: Tensor, mask_VM: Tensor) -> Tensor:
    """V × M: the clip of every query, all different, with the largest total score; -1 for none.

    The Hungarian method by shortest augmenting paths, for all videos together and in a fixed number of steps,
    so that a GPU is never asked for a value. With more queries than clips some queries stay without.
    """
    videos, rows, clips = score_VMC.shape
    device = score_VMC.device
    # A query that finds no clip goes to a spare column, at a price that no exchange of clips is worth.
    cost_VMK = F.pad(-score_VMC.double(), (0, max(rows - clips, 0)), value=4.0 * max(rows, 1))
    columns = cost_VMK.shape[2]
    row_price_VM = cost_VMK.new_zeros(videos, rows)
    price_VK = cost_VMK.new_zeros(videos, columns + 1)  # the last column is where a path starts
    owner_VK = torch.full((videos, columns + 1), -1, device=device)
    start_V = torch.full((videos,), columns, device=device)
    for row in range(rows):
        active_V = mask_VM[:, row]
        owner_VK[:, columns] = torch.where(active_V, row, -1)
        distance_VK = cost_VMK.new_full((videos, columns), torch.inf)
        came_from_VK = torch.full((videos, columns), columns, device=device)
        used_VK = torch.zeros(videos, columns + 1, dtype=torch.bool, device=device)
        column_V, searching_V = start_V, active_V
        for _ in range(row + 1):  # a path visits each query once
            used_VK = used_VK.scatter(1, column_V.unsqueeze(1), True) & active_V.unsqueeze(1)
            here_V = owner_VK.gather(1, column_V.unsqueeze(1)).clamp(min=0)
            cost_VK = cost_VMK.gather(1, here_V.unsqueeze(2).expand(-1, -1, columns)).squeeze(1)
            reduced_VK = cost_VK - row_price_VM.gather(1, here_V) - price_VK[:, :columns]
            free_VK = ~used_VK[:, :columns] & searching_V.unsqueeze(1)
            better_VK = free_VK & (reduced_VK < distance_VK)
            distance_VK = torch.where(better_VK, reduced_VK, distance_VK)
            came_from_VK = torch.where(better_VK, column_V.unsqueeze(1), came_from_VK)
            step_V, next_V = distance_VK.masked_fill(used_VK[:, :columns], torch.inf).min(1)
            step_V = torch.where(searching_V, step_V, 0.0)
            # Prices of everything on the tree move together; distances outside shrink.
            moved_VK = used_VK & searching_V.unsqueeze(1)
            price_VK = price_VK - moved_VK * step_V.unsqueeze(1)
            on_tree_VK = torch.where(moved_VK, owner_VK, rows)
            change_VM = torch.zeros(videos, rows + 1, dtype=torch.float64, device=device)
            change_VM = change_VM.scatter_add(1, on_tree_VK, step_V.unsqueeze(1).expand(-1, columns + 1))
            row_price_VM = row_price_VM + change_VM[:, :rows]
            distance_VK = torch.where(moved_VK[:, :columns], distance_VK, distance_VK - step_V.unsqueeze(1))
            column_V = torch.where(searching_V, next_V, column_V)
            searching_V = searching_V & (owner_VK.gather(1, column_V.unsqueeze(1)).squeeze(1) >= 0)
        for _ in range(row + 1):  # hand every column of the path to the query before it
            moving_V = active_V & (column_V != columns)
            before_V = came_from_VK.gather(1, column_V.clamp(max=columns - 1).unsqueeze(1)).squeeze(1)
            before_V = torch.where(moving_V, before_V, column_V)
            taken_V1 = owner_VK.gather(1, before_V.unsqueeze(1))
            kept_V1 = owner_VK.gather(1, column_V.unsqueeze(1))
            new_V1 = torch.where(moving_V.unsqueeze(1), taken_V1, kept_V1)
            owner_VK = owner_VK.scatter(1, column_V.unsqueeze(1), new_V1)
            column_V = before_V
    owner_VC = owner_VK[:, :clips]
    row_VC = torch.where(owner_VC >= 0, owner_VC, rows)
    found_VM = torch.full((videos, rows + 1), -1, device=device)
    return found_VM.scatter(1, row_VC, torch.arange(clips, device=device).expand(videos, -1))[:, :rows]
