"""Prepare a run: settings that fit the store, and their objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

import torch
from torch import Tensor, nn

from holmes.base.parallel import World
from holmes.config.names import extra_losses
from holmes.config.schema import AlignmentConfig, HolmesConfig
from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.encoders.checkpoint import ENCODERS, TRAINING_SECONDS
from holmes.errors import HolmesError
from holmes.evaluation.split_report import Identify
from holmes.evidence import dirichlet, query_kinds
from holmes.evidence.dirichlet import EvidenceForm
from holmes.losses import diversity
from holmes.losses.cross_query import cross_query_losses
from holmes.losses.entailment import entailment_term
from holmes.losses.matching import matching_term
from holmes.losses.objective import ExtraLoss, Objective, QueryOwners, Weights
from holmes.losses.text_structure import text_structure_term, video_mean_term
from holmes.records import CLIPS, FRAMES, TOKENS, Scores, Stage
from holmes.results import Json
from holmes.similarity import cosine_and_dot, guided_cosine_and_dot
from holmes.training.resume import Progress
from holmes.transport import alignment
from holmes.transport.alignment import Alignment

EVIDENCE_FORMS: dict[str, EvidenceForm] = {
    "sharp": dirichlet.sharp_evidence,
    "bounded": dirichlet.bounded_evidence,
}
DIVERSITY_FORMS = {"pairs": diversity.diversity_loss, "pooled": diversity.pooled_diversity_loss}
EXTRA_ALIGNMENTS: dict[str, Alignment] = {}  # of your own
EXTRA_LOSSES: dict[str, ExtraLoss] = {}  # of your own
# Of the baselines, made from settings.
BASELINE_LOSSES: dict[str, Callable[[HolmesConfig], ExtraLoss]] = {
    "matching": lambda config: partial(matching_term, clips=config.model.clips),
    "entailment": lambda config: entailment_term,
    "text_structure": lambda config: partial(text_structure_term, temperature=config.loss.text_temperature),
    "register_kl": lambda config: partial(video_mean_term, name="register_kl"),
    "denoising": lambda config: partial(video_mean_term, name="denoising"),
}
THRESHOLD_RULES = {
    "absolute": query_kinds.adaptive_thresholds,
    "relative": query_kinds.relative_thresholds,
}
MEDIAN_RULES = {
    "batch_median": query_kinds.below_batch_median,
    "candidate_median": query_kinds.below_candidate_median,
    "none": query_kinds.keep_candidates,
}
PARTITION_FUSIONS = {
    "uncertainty": query_kinds.uncertainty_dominance,
    "confidence": query_kinds.confidence_dominance,
    "frame": query_kinds.trust_frame,
    "clip": query_kinds.trust_clip,
}


def fit_to_store(config: HolmesConfig, store: Store) -> HolmesConfig:
    """Any preset trains on any store: the widths of the features are the store's, and so are the lengths.

    Lengths that were changed on purpose must be the store's: it holds pooled frames and clips, not raw ones.
    """
    info, asked = store.info, config.model
    for name, usual in (("frames", FRAMES), ("clips", CLIPS), ("tokens", TOKENS)):
        wanted, found = getattr(asked, name), getattr(info, name)
        if wanted not in (usual, found):
            raise HolmesError(
                f"{store.path} was packed with {found} {name}, the settings ask for {wanted}; what it holds "
                f"is pooled already, so pack it again with 'holmes data pack … --{name} {wanted}'."
            )
    model = replace(
        asked,
        video_width=info.video_width,
        text_width=info.text_width,
        frames=info.frames,
        clips=info.clips,
        tokens=info.tokens,
    )
    return replace(config, model=model)


def build_objective(config: HolmesConfig) -> Objective:
    evidence, loss = config.evidence, config.loss
    return Objective(
        weights=Weights(
            contrastive_clip=loss.contrastive_clip,
            contrastive_frame=loss.contrastive_frame,
            diversity=loss.diversity,
            intra=loss.intra,
            inter=loss.inter,
            contrastive_cosine=loss.contrastive_cosine,
        ),
        inter_temperature=evidence.inter_temperature,
        intra_temperature=evidence.intra_temperature,
        margin=loss.margin,
        hard_pool=loss.hard_pool,
        contrastive_temperature=loss.contrastive_temperature,
        diversity_margin=loss.diversity_margin,
        diversity_scale=loss.diversity_scale,
        beta=evidence.beta,
        smoothing=evidence.smoothing,
        calibrate=evidence.calibrate,
        inter_terms=evidence.inter_terms,
        evidence=EVIDENCE_FORMS[evidence.form],
        thresholds=THRESHOLD_RULES[evidence.thresholds],
        refine=MEDIAN_RULES[evidence.refine],
        fuse_partitions=PARTITION_FUSIONS[evidence.fusion],
        align=build_alignment(config.alignment),
        score=guided_cosine_and_dot if config.model.encoder == "ms_sl" else cosine_and_dot,
        timeline=config.model.clips if config.model.encoder == "ms_sl" else None,
        frame_losses=cross_query_losses if config.model.encoder == "ms_sl" else None,
        diversify=DIVERSITY_FORMS[loss.diversity_form],
        extra={name: (weight, extra_loss(name, config)) for name, weight in extra_losses(loss.extra).items()},
    )


def extra_loss(name: str, config: HolmesConfig) -> ExtraLoss:
    """A further term by its name: of a baseline, or added with `holmes.extend`."""
    made = BASELINE_LOSSES.get(name)
    return EXTRA_LOSSES[name] if made is None else made(config)


def build_alignment(config: AlignmentConfig) -> Alignment:
    return build_alignments(config)[config.kind]


def build_alignments(config: AlignmentConfig) -> dict[str, Alignment]:
    """Every kind of alignment with these settings."""
    return {
        "flexible": partial(
            alignment.flexible_alignment,
            entropy_weight=config.entropy_weight,
            dustbin_ratio=config.dustbin_ratio,
            iterations=config.iterations,
        ),
        "plain": partial(
            alignment.plain_alignment, entropy_weight=config.entropy_weight, iterations=config.iterations
        ),
        "softmax": partial(alignment.softmax_alignment, entropy_weight=config.entropy_weight),
        "best_clip": alignment.best_clip_alignment,
        **EXTRA_ALIGNMENTS,
    }


def build_identifier(config: HolmesConfig) -> Identify:
    """Training's rule for the kinds of queries, for evaluation."""
    objective = build_objective(config)

    def identify(cosine: Scores, owner_Q: Tensor) -> Tensor:
        everyone_Q = torch.ones_like(owner_Q, dtype=torch.bool)
        return objective.identify_queries(
            cosine, QueryOwners(owner_Q, torch.zeros_like(owner_Q), everyone_Q, 1)
        )

    return identify


def describe(
    config: HolmesConfig,
    bank: FeatureBank,
    fit: Split,
    model: nn.Module,
    device: torch.device,
    world: World,
    how: str,
) -> str:
    """What is printed before training; `how` says how a step runs, such as "recorded"."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    lines = [
        f"{config.name} on {bank.store.path.name}: {len(fit.videos):,} videos, "
        f"{len(fit.queries):,} queries, {parameters:,} parameters",
        f"{device}{' × ' + str(world.size) if world.size > 1 else ''}, "
        f"{'bf16 encoders' if device.type == 'cuda' else 'float32'}, "
        f"{how}; {bank.says}",
    ]
    return "\n".join([*lines, *warnings_of(config)])


def warnings_of(config: HolmesConfig) -> list[str]:
    """What is likely not meant about the settings of a run: said before training, and in its report."""
    training, found = config.training, []
    if training.epochs <= training.warm_up_epochs:
        found.append(
            f"stage 2 is not reached: stage 1 takes {training.warm_up_epochs} epochs (warm_up_epochs) of "
            f"{training.epochs}"
        )
    return found


def stage_of(epoch: int, warm_up_epochs: int) -> Stage:
    """Stage 1 for the first `warm_up_epochs`, stage 2 from then on."""
    return Stage.WARM_UP if epoch < warm_up_epochs else Stage.CALIBRATED


def extras_of(progress: Progress, store: Store, fit: Split) -> Json:
    """What a checkpoint records beside its weights and settings."""
    return {
        "epoch": progress.best_epoch,
        "select_SumR": progress.best_sum,
        TRAINING_SECONDS: store.usual_seconds(fit),
        ENCODERS: asdict(store.info.encoders),
    }
