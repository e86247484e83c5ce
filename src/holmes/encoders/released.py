"""Reads the published `torch.save` checkpoints, without executing anything they contain."""

from __future__ import annotations

import re
import zipfile
from argparse import Namespace
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holmes.base.files import sha256_file
from holmes.config.schema import (
    AlignmentConfig,
    EvidenceConfig,
    HolmesConfig,
    LossConfig,
    ModelConfig,
    ScoreConfig,
)
from holmes.encoders.checkpoint import (
    BEST,
    MANIFEST,
    MODEST,
    Checkpoint,
    load_checkpoint,
    numbers_asked_for,
)
from holmes.encoders.model import HolmesModel
from holmes.errors import HolmesError

# Parameters of the published models that nothing uses.
DEAD = ("weight_token",)

# Published name → ours, in this order; `{k}` marks one of the parallel blocks.
RENAMES = (
    (r"^modular_vector_mapping\.", "pool.response."),
    (r"^text_weight_fc\.0\.", "token_weights.hidden."),
    (r"^text_weight_fc\.2\.", "token_weights.weigh."),
    (r"^query_pos_embed\.", "query_places."),
    (r"^query_input_proj\.", "query_encoder.project."),
    (r"^query_encoder\.(?!project)", "query_encoder.block.0."),
    (r"^frame_branch_query_proj\.", "frame_query_encoder.project."),
    (r"^frame_branch_query_encoder\.", "frame_query_encoder.block.0."),
    (r"^(clip|frame)_pos_embed\.", r"\1_branch.place."),
    (r"^(clip|frame)_input_proj\.", r"\1_branch.project."),
    (r"^(clip|frame)_encoder(?:_1)?\.e_attns\.(\d+)\.", r"\1_branch.blocks.\2."),
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


def checkpoint_in(path: Path) -> Path | None:
    """The path itself, the best checkpoint of a run, or a published file; None where there is none."""
    if path.is_file():
        return path
    return next((each for each in (path, path / BEST) if (each / MANIFEST).exists()), None)


def open_checkpoint(path: Path, device: str = "cpu") -> Checkpoint:
    """A checkpoint of ours, the best one of a run, or a published file."""
    found = checkpoint_in(path)
    if found is None:
        raise HolmesError(f"{path} holds no checkpoint; name a run of 'holmes train', or a published file.")
    if found.is_dir():
        return load_checkpoint(found, device)
    released = load_released(found)
    return replace(released, model=released.model.to(device))


def load_released(path: Path) -> Checkpoint:
    """A published checkpoint as ours. Only tensors, numbers and plain containers are read."""
    # The safe reader fills only dictionaries of its own kinds, so one of those stands in for EasyDict.
    stand_ins = [(OrderedDict, "easydict.EasyDict"), (Namespace, "argparse.Namespace")]
    scalars = [np.dtype, np.float64, np.float32, np.dtypes.Float64DType, np.dtypes.Float32DType]
    scalar: Any = np.float64(0).__reduce__()[0]  # NumPy's own builder of scalars, under both its names
    numpy_scalar = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    refuse_compressed(path)
    try:
        with torch.serialization.safe_globals([*stand_ins, *scalars, *numpy_scalar]):
            saved = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise HolmesError(f"{path} does not exist.") from None
    except Exception as error:  # whatever goes wrong while reading a stranger's file is the file's fault
        asked = re.search(r"GLOBAL (\S+)", str(error))
        why = (
            f"it asks for {asked[1]}"
            if asked
            else "it is damaged or holds more than tensors and plain values"
        )
        raise HolmesError(f"{path} cannot be read safely: {why}.") from None
    if not isinstance(saved, dict) or "state_dict" not in saved:
        raise HolmesError(f"{path} is not a published checkpoint: it has no 'state_dict'.")
    settings = saved.get("config", {})
    state = saved["state_dict"]
    try:
        refuse_expanded(state)
        config = released_config(settings if isinstance(settings, dict) else dict(vars(settings)), state)
        ours = released_state(state, config.model)
        refuse_other_shapes(ours, config.model)
        model = HolmesModel(config.model)
        model.load_state_dict(ours)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise HolmesError(f"{path} is not a published Holmes model: {' '.join(str(error).split())}") from None
    return Checkpoint(model.eval(), config, digest=sha256_file(path), extras={"epoch": saved.get("epoch")})


def refuse_compressed(path: Path) -> None:
    """Refuse a file that takes more memory than disk space; torch compresses nothing."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            if any(entry.file_size > entry.compress_size for entry in file.infolist()):
                raise HolmesError(f"{path} cannot be read safely: its parts are compressed.")


def refuse_expanded(state: dict[str, Tensor]) -> None:
    """Refuse tensors that declare more numbers than they store, such as `zeros(1).expand(4096, 4096)`."""
    for name, tensor in state.items():
        stored = tensor.untyped_storage().nbytes() // tensor.element_size()
        if stored < tensor.numel():
            raise ValueError(
                f"'{name}' stores {stored} of the {tensor.numel()} numbers that its shape declares."
            )


def refuse_other_shapes(state: dict[str, Tensor], config: ModelConfig) -> None:
    """Compare shapes before a large model gets memory: one tensor decides how wide all of it would be."""
    if numbers_asked_for(config) <= MODEST:
        return
    with torch.device("meta"):
        expected = {name: list(value.shape) for name, value in HolmesModel(config).state_dict().items()}
    for name in sorted(expected.keys() | state.keys()):
        found = list(state[name].shape) if name in state else None
        if found != expected.get(name):
            raise ValueError(f"'{name}' has shape {found}, not {expected.get(name)}.")


def released_state(state: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Published weights under our names: parallel blocks stacked, clip positions cut to those in use."""
    ours: dict[str, Tensor] = {}
    blocks: dict[str, dict[int, Tensor]] = {}
    for name, value in state.items():
        if name in DEAD:
            continue
        renamed = rename(name)
        block = re.fullmatch(r"(.*\.blocks?)\.(\d+)\.(.*)\.(weight|bias)", renamed)
        if block is None:
            ours[renamed] = value
            continue
        prefix, index, layer, kind = block.groups()
        shape = "GD" if layer.endswith("norm") else "GIO" if kind == "weight" else "GO"
        tensor = value.T if value.ndim == 2 else value
        blocks.setdefault(f"{prefix}.{layer}.{kind}_{shape}", {})[int(index)] = tensor
    stacked = {name: torch.stack([v[index] for index in sorted(v)]) for name, v in blocks.items()}
    ours |= joined_projections(stacked)
    ours["clip_branch.place.positions.weight"] = ours["clip_branch.place.positions.weight"][: config.clips]
    return ours


def joined_projections(stacked: dict[str, Tensor]) -> dict[str, Tensor]:
    """Query, key and value projections of parallel blocks as one tensor each."""
    joined = {name: value for name, value in stacked.items() if not re.search(r"\.(query|key|value)\.", name)}
    for name in (name for name in stacked if ".query." in name):
        parts = [stacked[name.replace(".query.", f".{part}.")] for part in ("query", "key", "value")]
        target = name.replace(".query.", ".attention_input.").replace("_G", "_KG")
        joined[target] = torch.stack(parts)
    return joined


def rename(name: str) -> str:
    for pattern, replacement in RENAMES:
        name = re.sub(pattern, replacement, name)
    return name


def released_config(settings: dict[str, Any], state: dict[str, Tensor]) -> HolmesConfig:
    """Our settings from published ones: shapes come from the weights, the rest from their names."""
    projection = "{}_input_proj.net.1.weight"
    weights = settings.get("loss_factor", (0.02, 0.04, 0.003, 1e-4, 0.06))
    clip_nce, frame_nce, diversity, intra, inter = weights[:5]
    margin, scale = settings.get("neg_factor", (0.2, 32))[:2]
    clip_weight = settings.get("clip_scale_w", 0.6)
    return HolmesConfig(
        name="published",
        model=ModelConfig(
            video_width=state[projection.format("clip")].shape[1],
            text_width=state[projection.format("query")].shape[1],
            width=state[projection.format("clip")].shape[0],
            heads=settings.get("n_heads", 4),
            dual_query="text_weight_fc.0.weight" in state,
            mixing_temperature=settings.get("sft_factor", 0.6),
            dropout=settings.get("drop", 0.2),
            tokens=state["query_pos_embed.position_embeddings.weight"].shape[0],
        ),
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
        loss=LossConfig(
            contrastive_clip=clip_nce,
            contrastive_frame=frame_nce,
            diversity=diversity,
            intra=intra,
            inter=inter,
            margin=settings.get("margin", 0.2),
            hard_pool=settings.get("hard_pool_size", 20),
            diversity_margin=margin,
            diversity_scale=scale,
        ),
        score=ScoreConfig(frame_weight=1 - clip_weight, clip_weight=clip_weight),
    )
