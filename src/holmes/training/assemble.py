"""From settings to the callables and numbers that the maths takes."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from holmes.config.names import weighted_names
from holmes.config.schema import AlignmentConfig, HolmesConfig
from holmes.evaluation.partition import Identify
from holmes.evidence import dirichlet, query_kinds
from holmes.evidence.dirichlet import EvidenceForm
from holmes.losses import diversity
from holmes.losses.objective import ExtraLoss, Objective, QueryOwners, Weights
from holmes.records import Scores
from holmes.similarity import cosine_and_dot, guided_cosine_and_dot
from holmes.transport import alignment
from holmes.transport.alignment import Alignment

EVIDENCE_FORMS: dict[str, EvidenceForm] = {
    "sharp": dirichlet.sharp_evidence,
    "bounded": dirichlet.bounded_evidence,
}
DIVERSITY_FORMS = {"pairs": diversity.diversity_loss, "pooled": diversity.pooled_diversity_loss}
EXTRA_ALIGNMENTS: dict[str, Alignment] = {}  # of your own
EXTRA_LOSSES: dict[str, ExtraLoss] = {}  # of your own
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
        diversify=DIVERSITY_FORMS[loss.diversity_form],
        extra={
            name: (weight, EXTRA_LOSSES[name])
            for name, weight in weighted_names("loss.extra", loss.extra).items()
        },
    )


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
    """How training tells the kinds of queries apart, for evaluation."""
    objective = build_objective(config)

    def identify(cosine: Scores, owner_Q: Tensor) -> Tensor:
        everyone_Q = torch.ones_like(owner_Q, dtype=torch.bool)
        return objective.identify_queries(
            cosine, QueryOwners(owner_Q, torch.zeros_like(owner_Q), everyone_Q, 1)
        )

    return identify
