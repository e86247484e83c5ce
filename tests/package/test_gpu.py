"""What only a GPU can show: the fused kernels equal their plain twins, bf16 stays close to float32, a
recorded step equals a plain one, search is exact, and calibration runs there. Without a GPU the kernels are
checked in Triton's interpreter instead (test_kernels.py, test_index_kernel.py)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from holmes.config.presets import preset
from holmes.config.schema import with_changes
from holmes.encoders.attention_kernel import attend_fused
from holmes.encoders.gaussian import attend, gaussian_weights
from holmes.encoders.model import HolmesModel
from holmes.evidence.fitting import fit_calibration
from holmes.index.engine.gallery import Gallery, GallerySlab
from holmes.index.engine.nearest import nearest_videos
from holmes.index.engine.scan import make_probes, scan
from holmes.index.storage.segments import pack_parts
from holmes.losses.objective import QueryOwners
from holmes.records import Batch, QueryEmbedding, Scores, Stage
from holmes.training.optimizer import FlatAdam
from holmes.training.setup import build_objective
from holmes.training.step import STEPS_BEFORE, GraphedStep, TrainStep
from holmes.transport.alignment import flexible_alignment

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def relative(ours: torch.Tensor, reference: torch.Tensor) -> float:
    return ((ours.double() - reference.double()).norm() / reference.double().norm()).item()


@pytest.mark.parametrize(("length", "width"), [(128, 384), (32, 384), (30, 384), (128, 64)])
def test_fused_attention_equals_its_twin(length: int, width: int) -> None:
    torch.manual_seed(0)
    heads, widths = 4, [None, 0.5, 4.0]
    projected = torch.randn(
        5, length, 3, len(widths), width, device="cuda", dtype=torch.bfloat16, requires_grad=True
    )
    bias = torch.randn(3, len(widths), width, device="cuda", requires_grad=True)
    weights = gaussian_weights(widths, length).cuda()
    mask = (
        torch.arange(length, device="cuda") < torch.tensor([length, 17, 1, 9, length], device="cuda")[:, None]
    )
    gradient = torch.randn(len(widths), 5, length, width, device="cuda", dtype=torch.bfloat16)
    exact = attend(projected.double(), bias.double(), weights.double(), mask, heads, 0.0)
    exact_gradients = torch.autograd.grad(exact, [projected, bias], gradient.double())
    fused = attend_fused(projected, bias, weights, mask, heads, 0.0)
    fused_gradients = torch.autograd.grad(fused, [projected, bias], gradient)
    assert relative(fused, exact) < 1e-2
    for ours, reference in zip(fused_gradients, exact_gradients, strict=True):
        assert relative(ours, reference) < 1e-2


def test_the_kernels_of_a_step_equal_their_twins() -> None:
    """Also in shapes that fill no tile, with dropout, padding and NaN; and the same bits twice."""
    script = Path(__file__).parents[1] / "support" / "step_kernels_interpreted.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("ok") == 6, done.stdout


def test_fused_sinkhorn_equals_its_twin() -> None:
    torch.manual_seed(0)
    similarity_VMC = torch.rand(64, 27, 32)
    mask_VM = torch.arange(27) < torch.randint(1, 28, (64, 1))
    plain = flexible_alignment(similarity_VMC, mask_VM)
    fused = flexible_alignment(similarity_VMC.cuda(), mask_VM.cuda())
    assert torch.allclose(fused.cpu(), plain, atol=1e-5)


def make_batch(device: str, videos: int = 24, width: int = 96, text: int = 48) -> Batch:
    generator = torch.Generator().manual_seed(1)
    counts = torch.randint(1, 5, (videos,), generator=generator)
    owner = torch.arange(videos).repeat_interleave(counts)
    slot = torch.cat([torch.arange(int(count)) for count in counts])
    frames = torch.nn.functional.normalize(torch.randn(videos, 128, width, generator=generator), dim=-1)
    clips = torch.nn.functional.normalize(torch.randn(videos, 32, width, generator=generator), dim=-1)
    tokens = torch.nn.functional.normalize(torch.randn(len(owner), 30, text, generator=generator), dim=-1)
    lengths = torch.randint(40, 129, (videos,), generator=generator)
    token_lengths = torch.randint(3, 31, (len(owner),), generator=generator)
    tensors = (frames, lengths, clips, tokens, token_lengths, owner, slot)
    return Batch(*(tensor.to(device) for tensor in tensors), queries_per_video=4)


def make_step(device: str, dual: bool = False, dropout: float = 0.0, kernels: bool = False) -> TrainStep:
    changes = {"video_width": 96, "text_width": 48, "dropout": dropout, "dual_query": dual, "hard_pool": 1}
    config = with_changes(preset("tvr"), changes)
    torch.manual_seed(0)
    model = HolmesModel(config.model).to(device).train()
    return TrainStep(model, build_objective(config), FlatAdam(model), kernels=kernels)


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("dual", [False, True])
def test_gradients_in_bf16_stay_close_to_float32(dual: bool, kernels: bool) -> None:
    gradients = {}
    for device in ("cpu", "cuda"):
        step, batch = make_step(device, dual, kernels=kernels and device == "cuda"), make_batch(device)
        query, video = step.encode(batch)
        owners = QueryOwners(batch.owner_Q, batch.slot_Q, batch.query_mask_Q, batch.queries_per_video)
        uniform = torch.rand(len(batch.owner_Q), len(batch.frame_lengths_V), device=device)
        step.losses(query, video, owners, Stage.CALIBRATED, uniform)["total"].backward()
        gradients[device] = step.optimizer.collect_gradients().cpu()
    cosine = torch.nn.functional.cosine_similarity(gradients["cpu"], gradients["cuda"], dim=0).item()
    assert cosine > 0.99
    assert relative(gradients["cuda"], gradients["cpu"]) < 0.15


@pytest.mark.parametrize("kernels", [False, True], ids=["plain", "kernels"])
def test_a_recorded_step_equals_a_plain_one(kernels: bool) -> None:
    losses = {}
    for recorded in (False, True):
        step = make_step("cuda", kernels=kernels)
        batch = make_batch("cuda")
        run = GraphedStep(step) if recorded else step
        torch.manual_seed(3)
        rate = torch.tensor(1e-4, device="cuda")
        uniform = torch.rand(len(batch.owner_Q), len(batch.frame_lengths_V), device="cuda")
        reports = [run(batch, Stage.CALIBRATED, uniform, rate).values_N for _ in range(STEPS_BEFORE + 4)]
        losses[recorded] = torch.stack(reports).cpu()
    assert torch.allclose(losses[True], losses[False], rtol=2e-2)
    assert losses[True][-1, 0] < losses[True][0, 0], "the replayed steps must go on learning"


def test_dropout_goes_on_being_random_when_replayed() -> None:
    step = make_step("cuda", dropout=0.5)
    batch, run = make_batch("cuda"), GraphedStep(step)
    rate = torch.tensor(0.0, device="cuda")
    uniform = torch.rand(len(batch.owner_Q), len(batch.frame_lengths_V), device="cuda")
    losses = [run(batch, Stage.CALIBRATED, uniform, rate).values_N[0].item() for _ in range(STEPS_BEFORE + 4)]
    assert len(set(losses)) == len(losses), "same weights, same batch: only dropout can differ"


@pytest.mark.parametrize("kernels", [False, True], ids=["plain", "kernels"])
def test_recorded_steps_vary_as_plain_ones(kernels: bool) -> None:
    """Same weights, same batch: the loss varies with dropout alone, and as much however a step is run."""
    batch = make_batch("cuda")
    rate = torch.tensor(0.0, device="cuda")
    uniform = torch.rand(len(batch.owner_Q), len(batch.frame_lengths_V), device="cuda")

    def losses(run: TrainStep | GraphedStep) -> torch.Tensor:
        values = [run(batch, Stage.CALIBRATED, uniform, rate).values_N[0] for _ in range(STEPS_BEFORE + 200)]
        return torch.stack(values[STEPS_BEFORE + 1 :])

    plain = losses(make_step("cuda", dropout=0.25))
    other = losses(GraphedStep(make_step("cuda", dropout=0.25, kernels=kernels)))
    assert len(other.unique()) == len(other)
    error = (plain.var() / len(plain) + other.var() / len(other)).sqrt()
    assert (plain.mean() - other.mean()).abs() < 4 * error
    assert 0.6 < (other.std() / plain.std()).item() < 1.6


def test_a_step_with_kernels_gives_every_parameter_its_gradient() -> None:
    """With dropout at work."""
    batch = make_batch("cuda")
    owners = QueryOwners(batch.owner_Q, batch.slot_Q, batch.query_mask_Q, batch.queries_per_video)
    uniform = torch.rand(len(batch.owner_Q), len(batch.frame_lengths_V), device="cuda")

    def strengths(kernels: bool) -> dict[str, float]:
        """Each parameter's root mean square gradient over many draws."""
        step = make_step("cuda", dropout=0.25, kernels=kernels)
        squares = torch.zeros_like(step.optimizer.values)
        for _ in range(40):
            step.losses(*step.encode(batch), owners, Stage.CALIBRATED, uniform)["total"].backward()
            squares += step.optimizer.collect_gradients() ** 2
        names = [name for name, _ in step.model.named_parameters()]
        return {
            name: view.mean().sqrt().item()
            for name, view in zip(names, step.optimizer._views(squares), strict=True)
        }

    plain, fused = strengths(False), strengths(True)
    wrong = {name for name in plain if not 0.7 * plain[name] <= fused[name] <= 1.4 * plain[name]}
    # A softmax does not see what is added to all positions: these biases have rounding errors for gradients.
    assert wrong <= {"frame_branch.mix.ask.key.bias", "clip_branch.mix.ask.key.bias"}


def test_padding_does_not_matter_on_the_gpu() -> None:
    model = (
        HolmesModel(with_changes(preset("tvr"), {"video_width": 96, "text_width": 48}).model).cuda().eval()
    )
    batch = make_batch("cuda")
    with torch.no_grad():
        whole = model.encode_queries(batch.tokens_QTD, batch.token_lengths_Q).query_QD
        one = model.encode_queries(batch.tokens_QTD[3:4], batch.token_lengths_Q[3:4]).query_QD
        noisy = replace(batch, tokens_QTD=batch.tokens_QTD + 0)
        noisy.tokens_QTD[0, batch.token_lengths_Q[0] :] = 7.0
        padded = model.encode_queries(noisy.tokens_QTD, batch.token_lengths_Q).query_QD
    assert relative(one, whole[3:4]) < 1e-3
    assert relative(padded, whole) < 1e-3


@pytest.mark.parametrize("dual", [False, True], ids=["single", "dual"])
def test_search_is_exact(dual: bool) -> None:
    """The fused scan and rescoring find what float64 finds, in a gallery of several heights with holes."""
    torch.manual_seed(0)
    heights, videos = (48, 160), []
    for height in heights:
        rows = torch.randn(700, height, 384).numpy()
        spans = np.zeros((700, height, 2))
        videos.append(pack_parts("x", 1.0, rows[:, :-32], rows[:, -32:], spans[:, :-32], spans[:, -32:]))
    live_S, numbers = torch.rand(1400) > 0.1, torch.arange(1400)

    def gallery_on(device: str, rows_device: str) -> Gallery:
        slabs = []
        for first, video in zip((0, 700), videos, strict=True):
            codes, of_codes = (
                torch.from_numpy(part).to(device) for part in (video.codes_SPD, video.numbers_S3)
            )
            rows_SPD = torch.from_numpy(video.rows_SPD).to(rows_device)
            slabs.append(GallerySlab(first, codes, of_codes, rows_SPD))
        described = (part.to(device) for part in (numbers, numbers, live_S))
        positions_S2 = np.zeros((1400, 2), np.int64)
        return Gallery(tuple(slabs), 32, positions_S2, *described, torch.device(device))

    gallery, on_cpu = gallery_on("cuda", "cuda"), gallery_on("cpu", "cpu")
    rows_on_host = gallery_on("cuda", "cpu")  # as where a GPU has no room for them
    for queries in (1, 40, 300):
        tokens = torch.randn(queries, 5, 384, device="cuda") if dual else None
        weights = torch.full((queries, 5), 0.2, device="cuda") if dual else None
        query = QueryEmbedding(torch.randn(queries, 384, device="cuda"), tokens, weights)
        probes = make_probes(query, 0.4, 0.6)
        found = nearest_videos(gallery, probes, 10)
        parts = []
        for slab in gallery.slabs:
            similarity = torch.einsum("qtd,spd->qtsp", probes.rows_QTD.double(), slab.rows_SPD.double())
            best = similarity[..., :-32].amax(-1), similarity[..., -32:].amax(-1)
            both = zip((probes.frame_weight_QT, probes.clip_weight_QT), best, strict=True)
            parts.append(sum((weight_QT[..., None] * best_QTS).sum(1) for weight_QT, best_QTS in both))
        exact_QS = torch.cat(parts, 1).masked_fill(~live_S.cuda(), -torch.inf)
        score_QK, part_QK = exact_QS.topk(10)
        torch.testing.assert_close(found.score_QK, score_QK, atol=1e-7, rtol=0)
        assert torch.equal(found.hit_QH, part_QK)
        bound_QS, sums = scan(gallery, probes, None)
        assert (bound_QS >= torch.cat(parts, 1)).all() and sums.count == 1400
        for same in (nearest_videos(on_cpu, probes.to("cpu"), 10), nearest_videos(rows_on_host, probes, 10)):
            assert torch.equal(found.parts_QK.cpu(), same.parts_QK.cpu())
            assert torch.equal(found.score_QK.cpu(), same.score_QK.cpu()), "exact, so equal bit for bit"


def test_a_calibration_is_fitted_where_the_scores_are() -> None:
    torch.manual_seed(0)
    owner_Q, branches = torch.randint(0, 40, (200,)), 0.2 + 0.06 * torch.randn(2, 200, 40)
    branches[:, torch.arange(200), owner_Q] += 0.2
    fitted = [
        fit_calibration(Scores(*branches.to(device)), owner_Q.to(device), 0.4, 0.6, "m")
        for device in ("cpu", "cuda")
    ]
    on_cpu, on_gpu = (torch.tensor([one.score_temperature, one.score_offset]) for one in fitted if one)
    torch.testing.assert_close(on_gpu, on_cpu, atol=1e-3, rtol=1e-2)
