"""Map published weights and settings to our names, for Holmes and the baselines.

A published checkpoint holds parallel blocks one by one, ours holds them stacked: in a new name `{k}` marks
block k, and disappears when the blocks are stacked.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from holmes.config.schema import (
    AlignmentConfig,
    EvidenceConfig,
    HolmesConfig,
    LossConfig,
    ModelConfig,
    ScoreConfig,
)

Renames = tuple[tuple[str, str], ...]

# What tells the methods apart: the first tensor that is there names the encoder.
MARKS = {
    "mapping_linear.0.weight": "ms_sl",
    "clip_encoder.attn0.output.dense.weight": "gmmformer",
    "clip_encoder.attn0.output.layer1.weight": "gmmformer_v2",
    "curv": "hlformer",
    "diffusion_mlp.short_cut.weight": "dreamprvr",
}
# Parameters of the published models that nothing uses, or that are fixed.
DEAD = {
    "mixture": r"weight_token",
    "hlformer": r".*manifold\.k",
}

# Published name → ours, in this order: the method's own first, then the common ones.
SLIM: Renames = (
    (r"^query_encoder\.", "query_encoder.block.{0}."),
    (r"\.output\.dense\.", ".project."),
    (r"\.output\.LayerNorm\.", ".norm."),
)
OWN: dict[str, Renames] = {
    "ms_sl": (
        *SLIM,
        (r"^(clip|frame)_encoder\.", r"\1_branch.layers.0.{0}."),
        (r"^mapping_linear\.0\.", "key."),
        (r"^mapping_linear\.1\.", "value."),
    ),
    "gmmformer": (
        *SLIM,
        (r"^(clip|frame)_encoder_2\.attn(\d+)\.", r"\1_branch.layers.1.{\2}."),
        (r"^(clip|frame)_encoder(?:_1)?\.attn(\d+)\.", r"\1_branch.layers.0.{\2}."),
        (r"^modular_vector_mapping_2\.", "frame_pool.response."),
    ),
    "gmmformer_v2": (
        (r"^(clip|frame)_encoder(?:_1)?\.attn(\d+)\.", r"\1_branch.blocks.{\2}."),
        (r"^weight_token$", "mixing_token"),
    ),
    "hlformer": (
        (r"\.h_attns\.(\d+)\.(output|norm1|norm2)\.", r".h_attns.blocks.{+\1}.\2."),
        (r"\.h_attns\.(\d+)\.self\.input_proj\.", r".h_attns.blocks.lorentz.enter.{\1}."),
        (r"\.h_attns\.(\d+)\.self\.output_proj\.", r".h_attns.blocks.lorentz.leave.{\1}."),
        (r"\.h_attns\.(\d+)\.self\.scale_alpha$", r".h_attns.blocks.lorentz.{\1}.log_scale"),
        (
            r"\.h_attns\.(\d+)\.self\.lorentz_multiattention\.",
            r".h_attns.blocks.lorentz.points.{\1}.",
        ),
        (r"\.points\.\{(\d+)\}\.scale$", r".{\1}.divisor"),
        (r"\.points\.\{(\d+)\}\.bias$", r".{\1}.bias"),
        (r"\.linear_(query|key|value)s?\.scale$", r".\1.log_time"),
        (r"\.linear_(query|key|value)s?\.weight\.weight$", r".\1.weight"),
        (r"^(clip|frame)_encoder(?:_1)?\.h_attns\.", r"\1_branch."),
        (r"^modular_vector_mapping_2\.", "frame_pool.response."),
        (r"^modular_vector_mapping_3\.", "clip_pool.response."),
        (r"^curv$", "log_curvature"),
        (r"^textual_alpha$", "log_query_scale"),
        (r"^video_alpha$", "log_video_scale"),
    ),
    "dreamprvr": (
        (r"^mean_clip_encoder\.", "registers.gist.{0}."),
        (r"^video_qformer\.query_tokens$", "registers.condition.tokens"),
        (r"^video_qformer\.cross_attention\.", "registers.condition."),
        (r"^video_probabilistic_variational_sampler\.", "registers.start."),
        (r"\.gpo\.gru\.(weight|bias)_(ih|hh)_l0$", r".ranks.{0}.\2.\1"),
        (r"\.gpo\.gru\.(weight|bias)_(ih|hh)_l0_reverse$", r".ranks.{1}.\2.\1"),
        (r"\.gpo\.linear\.", ".ranks.weigh."),
        (r"\.pie_net_video\.attention\.w_(\d)\.", r".mean_pool.w\1."),
        (r"\.pie_net_video\.fc\.", ".mean_change."),
        (r"\.pie_net_video\.layer_norm\.", ".mean_norm."),
        (r"\.uncertain_net_video\.attention\.w_(\d)\.", r".variance_pool.w\1."),
        (r"\.uncertain_net_video\.fc\.", ".variance_pooled."),
        (r"\.uncertain_net_video\.fc2\.", ".variance_sorted."),
        (r"^diffusion_mlp\.time_embedding\.timembedding\.0\.weight$", "registers.denoiser.time_TD"),
        (r"^diffusion_mlp\.time_embedding\.timembedding\.1\.", "registers.denoiser.time_in."),
        (r"^diffusion_mlp\.time_embedding\.timembedding\.3\.", "registers.denoiser.time_out."),
        (r"^diffusion_mlp\.cond_embedding\.0\.", "registers.denoiser.condition_norm."),
        (r"^diffusion_mlp\.cond_embedding\.2\.", "registers.denoiser.condition_in."),
        (r"^diffusion_mlp\.short_cut\.", "registers.denoiser.output."),
        (r"^diffusion_mlp\.layers\.", "registers.denoiser.layers."),
        (r"\.blcok_in\.0\.", ".input_norm."),
        (r"\.blcok_in\.2\.", ".widen."),
        (r"\.blcok_out\.0\.", ".middle_norm."),
        (r"\.blcok_out\.3\.", ".narrow."),
        (r"\.temb_proj\.1\.", ".time."),
        (r"\.cond_proj\.1\.", ".condition."),
        (r"\.short_cut\.", ".shortcut."),
        (r"^(clip|frame)_encoder\.noise_input_layer\.", r"\1_branch.blocks.register_input."),
    ),
}
COMMON: Renames = (
    (r"^modular_vector_mapping\.", "pool.response."),
    (r"^text_weight_fc\.0\.", "token_weights.hidden."),
    (r"^text_weight_fc\.2\.", "token_weights.weigh."),
    (r"^query_pos_embed\.", "query_places."),
    (r"^query_input_proj\.", "query_encoder.project."),
    (r"^query_encoder\.(?!project|block)", "query_encoder.block.{0}."),
    (r"^frame_branch_query_proj\.", "frame_query_encoder.project."),
    (r"^frame_branch_query_encoder\.", "frame_query_encoder.block.{0}."),
    (r"^(clip|frame)_pos_embed\.", r"\1_branch.place."),
    (r"^(clip|frame)_input_proj\.", r"\1_branch.project."),
    (r"^(clip|frame)_encoder(?:_1)?\.e_attns\.(\d+)\.", r"\1_branch.blocks.{\2}."),
    (r"^(clip|frame)_encoder(?:_1)?\.ca\.", r"\1_branch.mix.ask."),
    (r"^(clip|frame)_encoder(?:_1)?\.layer1\.", r"\1_branch.mix.hidden."),
    (r"^(clip|frame)_encoder(?:_1)?\.layer2\.", r"\1_branch.mix.weigh."),
    (r"\.position_embeddings\.", ".positions."),
    (r"\.LayerNorm\.", ".norm."),
    (r"\.net\.1\.", ".linear."),
    (r"\.self\.(query|key|value)\.", r".\1."),
    (r"\.output\.layer1\.", ".widen."),
    (r"\.output\.layer2\.", ".narrow."),
    (r"\.norm1\.", ".attention_norm."),
    (r"\.norm2\.", ".output_norm."),
)
# A published block without window, in order: the widths of the released models.
WIDTHS: dict[str, tuple[float | None, ...]] = {
    "ms_sl": (None,),
    "gmmformer": (None, 0.5, 1.0, 5.0),
    "gmmformer_v2": (None, 0.5, 1.0, 5.0, 10.0, 3.0, 0.1, 8.0),
    "hlformer": (None, 2.0, 4.0, 8.0),
    "dreamprvr": (None, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
}
# The terms behind the first weights of `loss_factor`.
TERMS = {
    "gmmformer_v2": ("matching",),
    "hlformer": ("entailment",),
    "dreamprvr": ("text_structure", "register_kl", "denoising"),
}


def encoder_of(state: dict[str, Tensor]) -> str:
    """The encoder that a published state belongs to."""
    return next((encoder for mark, encoder in MARKS.items() if mark in state), "mixture")


def released_state(state: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Published weights under our names: parallel blocks stacked, clip positions cut to those in use."""
    ours: dict[str, Tensor] = {}
    blocks: dict[str, dict[int, Tensor]] = {}
    for name, value in state.items():
        if re.fullmatch(DEAD.get(config.encoder, ""), name):
            continue
        renamed = rename(name, config)
        block = re.fullmatch(r"(.*)\.\{(\d+)\}\.(.*)", renamed)
        if block is None:
            ours[renamed] = value
            continue
        prefix, index, layer = block.groups()
        tensor = value.T if value.ndim == 2 else value.reshape(()) if value.numel() == 1 else value
        blocks.setdefault(f"{prefix}.{layer}_{stacked_shape(layer, tensor)}", {})[int(index)] = tensor
    stacked = {name: torch.stack([v[index] for index in sorted(v)]) for name, v in blocks.items()}
    ours |= joined_projections(stacked)
    ours["clip_branch.place.positions.weight"] = ours["clip_branch.place.positions.weight"][: config.clips]
    for name in ("mixing_token", "registers.condition.tokens"):
        if name in ours:
            ours[name] = ours[name].reshape(-1, config.width).squeeze(0)
    return ours


def stacked_shape(layer: str, tensor: Tensor) -> str:
    """The shape that our name of a stacked tensor ends with."""
    if tensor.ndim == 0:
        return "G"
    if tensor.ndim == 2:
        return "GIO"
    return "GD" if layer.split(".")[-2].endswith("norm") else "GO"


def joined_projections(stacked: dict[str, Tensor]) -> dict[str, Tensor]:
    """Query, key and value projections of parallel blocks as one tensor each."""
    joined = {name: value for name, value in stacked.items() if not re.search(r"\.(query|key|value)\.", name)}
    for name in (name for name in stacked if ".query." in name):
        parts = [stacked[name.replace(".query.", f".{part}.")] for part in ("query", "key", "value")]
        target = name.replace(".points.query.", ".points.").replace(".query.", ".attention_input.")
        joined[target.replace("_G", "_KG")] = torch.stack(parts)
    return joined


def rename(name: str, config: ModelConfig) -> str:
    for pattern, replacement in (*OWN.get(config.encoder, ()), *COMMON):
        name = re.sub(pattern, replacement, name)
    # Lorentz blocks stand behind the flat ones.
    return re.sub(r"\{\+(\d+)\}", lambda k: f"{{{int(k[1]) + len(config.gaussian_widths)}}}", name)


def released_config(settings: dict[str, Any], state: dict[str, Tensor]) -> HolmesConfig:
    """Our settings from published ones: shapes come from the weights, the rest from their names."""
    encoder = encoder_of(state)
    projection = "{}_input_proj.net.1.weight"
    clip_weight = settings.get("clip_scale_w", 0.6)
    model = ModelConfig(
        video_width=state[projection.format("clip")].shape[1],
        text_width=state[projection.format("query")].shape[1],
        width=state[projection.format("clip")].shape[0],
        heads=settings.get("n_heads", 4),
        dual_query="text_weight_fc.0.weight" in state,
        mixing_temperature=settings.get("sft_factor", 0.6),
        dropout=settings.get("drop", 0.2),
        tokens=state["query_pos_embed.position_embeddings.weight"].shape[0],
        encoder=encoder,
        **shapes_of(encoder, state),
    )
    return HolmesConfig(
        name="published",
        model=model,
        evidence=EvidenceConfig(
            inter_temperature=settings.get("edl_tau", 0.05),
            intra_temperature=settings.get("edl_intra_video_tau", 0.06),
            beta=settings.get("division_beta", 0.3),
            smoothing=settings.get("smooth_beta", 0.2),
        ),
        alignment=AlignmentConfig(
            entropy_weight=settings.get("pot_scale", 0.1),
            dustbin_ratio=settings.get("pot_prompt_ratio", 0.3),
        ),
        loss=released_losses(encoder, settings),
        score=ScoreConfig(frame_weight=1 - clip_weight, clip_weight=clip_weight),
    )


def shapes_of(encoder: str, state: dict[str, Tensor]) -> dict[str, Any]:
    """The settings that only one method has."""
    shapes: dict[str, Any] = {"gaussian_widths": WIDTHS[encoder]} if encoder in WIDTHS else {}
    if encoder == "hlformer":
        name = "clip_encoder.h_attns.0.self.lorentz_multiattention.linear_query.weight.weight"
        shapes["lorentz_width"] = state[name].shape[0]
    if encoder == "dreamprvr":
        shapes["registers"] = state["video_qformer.query_tokens"].shape[1]
    return shapes


def released_losses(encoder: str, settings: dict[str, Any]) -> LossConfig:
    """The weights of a published objective: InfoNCE on clips and on frames, diversity, the method's terms."""
    weights = [*settings.get("loss_factor", (0.02, 0.04, 0.003, 1e-4, 0.06)), 0.0]
    holmes = encoder == "mixture"
    margin, scale = settings.get("neg_factor", (0.2, 32))[:2]
    own = zip(TERMS.get(encoder, ()), weights[3:], strict=False)
    return LossConfig(
        contrastive_clip=weights[0],
        contrastive_frame=weights[1],
        diversity=weights[2],
        intra=weights[3] if holmes else 0.0,
        inter=weights[4] if holmes else 0.0,
        margin=settings.get("margin", 0.2),
        hard_pool=settings.get("hard_pool_size", 20),
        diversity_margin=margin,
        diversity_scale=scale,
        diversity_form="pooled" if encoder == "gmmformer" else "pairs",
        extra=tuple(f"{name}:{weight}" for name, weight in own),
        text_temperature=settings.get("deterministic_tau", 0.09),
    )
