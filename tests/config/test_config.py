"""Settings: the presets' published values, the ablations, and what is refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import partial
from typing import get_args, get_type_hints

import pytest
import torch

from holmes.config import ablations
from holmes.config.names import NAMES
from holmes.config.presets import PRESETS, preset
from holmes.config.schema import (
    SECTIONS,
    AlignmentConfig,
    EvidenceConfig,
    HolmesConfig,
    LossConfig,
    ModelConfig,
    ScoreConfig,
    TrainingConfig,
    from_dict,
    to_dict,
    with_changes,
)
from holmes.encoders.build import ENCODERS
from holmes.errors import HolmesError
from holmes.evidence import dirichlet, query_kinds
from holmes.training.setup import (
    DIVERSITY_FORMS,
    EVIDENCE_FORMS,
    MEDIAN_RULES,
    PARTITION_FUSIONS,
    build_alignment,
    build_objective,
)
from holmes.transport import alignment

# The released configurations, setting by setting.
PUBLISHED = {
    "model.video_width": {"activitynet": 1024, "charades": 1024, "tvr": 3072, "tvr_dual": 3072},
    "model.text_width": {"activitynet": 1024, "charades": 1024, "tvr": 768, "tvr_dual": 768},
    "model.dual_query": {"activitynet": False, "charades": False, "tvr": False, "tvr_dual": True},
    "model.mixing_temperature": {"activitynet": 0.6, "charades": 0.6, "tvr": 0.09, "tvr_dual": 0.09},
    "model.dropout": {"activitynet": 0.31, "charades": 0.25, "tvr": 0.2, "tvr_dual": 0.2},
    "evidence.inter_temperature": {"activitynet": 0.04, "charades": 0.08, "tvr": 0.05, "tvr_dual": 0.2},
    "evidence.intra_temperature": {"activitynet": 0.08, "charades": 0.08, "tvr": 0.06, "tvr_dual": 0.04},
    "loss.contrastive_clip": {"activitynet": 0.02, "charades": 0.02, "tvr": 0.05, "tvr_dual": 0.05},
    "loss.contrastive_frame": {"activitynet": 0.04, "charades": 0.04, "tvr": 0.04, "tvr_dual": 0.04},
    "loss.diversity": {"activitynet": 0.003, "charades": 0.003, "tvr": 8e-5, "tvr_dual": 8e-5},
    "loss.intra": {"activitynet": 1e-4, "charades": 9e-4, "tvr": 0.8, "tvr_dual": 0.1},
    "loss.inter": {"activitynet": 0.06, "charades": 0.06, "tvr": 0.2, "tvr_dual": 0.01},
    "loss.margin": {"activitynet": 0.2, "charades": 0.2, "tvr": 0.1, "tvr_dual": 0.1},
    "loss.diversity_margin": {"activitynet": 0.2, "charades": 0.2, "tvr": 0.15, "tvr_dual": 0.15},
    "score.clip_weight": {"activitynet": 0.6, "charades": 0.6, "tvr": 0.6, "tvr_dual": 0.5},
    "score.frame_weight": {"activitynet": 0.4, "charades": 0.4, "tvr": 0.4, "tvr_dual": 0.5},
    "training.learning_rate": {"activitynet": 2.5e-4, "charades": 2e-4, "tvr": 3e-4, "tvr_dual": 3e-4},
    "training.epochs": {"activitynet": 100, "charades": 100, "tvr": 100, "tvr_dual": 150},
    "training.patience": {"activitynet": 10, "charades": 20, "tvr": 20, "tvr_dual": 20},
}
# The same in all of them.
COMMON = {
    "model.width": 384,
    "model.heads": 4,
    "model.gaussian_widths": (None, 0.5, 1, 2, 4, 8, 16, 32),
    "model.frames": 128,
    "model.clips": 32,
    "model.tokens": 30,
    "model.encoder": "mixture",
    "model.lorentz_width": 128,  # without effect, as the next one: of other encoders
    "model.registers": 8,
    "loss.text_temperature": 0.09,  # without effect: its term is not in `extra`
    "evidence.form": "sharp",
    "evidence.refine": "batch_median",
    "evidence.fusion": "uncertainty",
    "evidence.beta": 0.3,
    "evidence.thresholds": "absolute",
    "evidence.smoothing": 0.2,
    "evidence.calibrate": True,
    "evidence.inter_terms": ("frame", "clip", "fused"),
    "alignment.kind": "flexible",
    "alignment.entropy_weight": 0.1,
    "alignment.dustbin_ratio": 0.3,
    "alignment.iterations": 50,
    "loss.hard_pool": 20,
    "loss.contrastive_cosine": 0,
    "loss.contrastive_temperature": 0.07,
    "loss.diversity_scale": 32,
    "loss.diversity_form": "pairs",
    "loss.extra": (),
    "training.warm_up_epochs": 20,
    "training.batch_videos": 128,
    "training.lr_warm_up": 0.01,
    "training.weight_decay": 0.01,
    "training.gradient_norm": 1.0,
}


def setting(config: HolmesConfig, name: str):
    section, field = name.split(".")
    return getattr(getattr(config, section), field)


@pytest.mark.parametrize("name", ["activitynet", "charades", "tvr", "tvr_dual"])
def test_presets_have_the_released_values(name):
    config = preset(name)
    assert config.name == name
    for key, values in PUBLISHED.items():
        assert setting(config, key) == values[name], key
    for key, value in COMMON.items():
        assert setting(config, key) == value, key


def test_every_setting_of_the_released_configurations_is_pinned():
    """A new setting must say here what the published runs had; how to select a model is our own matter."""
    every = {f"{section}.{f.name}" for section in SECTIONS for f in fields(getattr(preset("tvr"), section))}
    assert every - set(PUBLISHED) - set(COMMON) == {"training.held_out"}


@pytest.mark.parametrize("name", ["activitynet", "charades", "tvr", "tvr_dual", "small"])
def test_plus_changes_what_was_shown_to_help_and_nothing_else(name):
    published, better = preset(name), preset(f"{name}_plus")
    assert better.name == f"{name}_plus"
    assert better.loss.contrastive_cosine == 0.25 and better.loss.contrastive_temperature == 0.07
    assert replace(better, name=name, loss=published.loss) == published
    assert replace(better.loss, contrastive_cosine=0.0) == published.loss


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(HolmesError, match="unknown preset 'activitinet'; did you mean 'activitynet'"):
        preset("activitinet")


# Both forms of what the text and the released configuration do differently


def test_both_evidence_forms_are_settings():
    for form, function in (("sharp", dirichlet.sharp_evidence), ("bounded", dirichlet.bounded_evidence)):
        objective = build_objective(with_changes(preset("tvr"), {"evidence.form": form}))
        assert objective.evidence is function
    similarity = torch.tensor([[0.5]], dtype=torch.float64)
    assert dirichlet.sharp_evidence(similarity, 0.1).item() == pytest.approx(101.613, abs=1e-3)
    assert dirichlet.bounded_evidence(similarity, 0.1).item() == pytest.approx(2.718035, abs=1e-5)


def test_both_median_rules_are_settings():
    rules = {
        "batch_median": query_kinds.below_batch_median,
        "candidate_median": query_kinds.below_candidate_median,
        "none": query_kinds.keep_candidates,
    }
    for name, rule in rules.items():
        assert build_objective(with_changes(preset("tvr"), {"refine": name})).refine is rule


@pytest.mark.parametrize(
    "section, field, functions",
    [
        (EvidenceConfig, "refine", MEDIAN_RULES),
        (EvidenceConfig, "fusion", PARTITION_FUSIONS),
        (LossConfig, "diversity_form", DIVERSITY_FORMS),
    ],
)
def test_every_choice_has_its_function(section, field, functions):
    assert set(get_args(get_type_hints(section)[field])) == set(functions)
    assert len(set(functions.values())) == len(functions)


@pytest.mark.parametrize(
    "setting, functions", [("evidence.form", EVIDENCE_FORMS), ("model.encoder", ENCODERS)]
)
def test_every_name_has_its_function(setting, functions):
    assert set(NAMES[setting]) == set(functions)
    assert len(set(functions.values())) == len(functions)


def test_every_alignment_kind_has_its_function():
    expected = {
        "flexible": alignment.flexible_alignment,
        "plain": alignment.plain_alignment,
        "softmax": alignment.softmax_alignment,
        "best_clip": alignment.best_clip_alignment,
    }
    assert set(NAMES["alignment.kind"]) == set(expected)
    for kind, function in expected.items():
        built = build_alignment(
            AlignmentConfig(kind=kind, entropy_weight=0.07, dustbin_ratio=0.4, iterations=9)
        )
        assert (built.func if isinstance(built, partial) else built) is function
    flexible = build_alignment(AlignmentConfig(entropy_weight=0.07, dustbin_ratio=0.4, iterations=9))
    assert flexible.keywords == {"entropy_weight": 0.07, "dustbin_ratio": 0.4, "iterations": 9}


@pytest.mark.parametrize("name", PRESETS)
def test_settings_reach_the_objective(name):
    config = preset(name)
    objective = build_objective(config)
    for part in ("contrastive_clip", "contrastive_frame", "diversity", "intra", "inter"):
        assert getattr(objective.weights, part) == getattr(config.loss, part)
    for part in ("margin", "hard_pool", "diversity_margin", "diversity_scale"):
        assert getattr(objective, part) == getattr(config.loss, part)
    for part in (
        "inter_temperature",
        "intra_temperature",
        "beta",
        "smoothing",
        "calibrate",
        "inter_terms",
    ):
        assert getattr(objective, part) == getattr(config.evidence, part)


# Ablations


ABLATED = {
    1: {"evidence.inter_terms": ("frame",)},
    2: {"evidence.inter_terms": ("clip",)},
    3: {"evidence.inter_terms": ("frame", "clip")},
    5: {"evidence.fusion": "frame"},
    6: {"evidence.fusion": "clip"},
    7: {"evidence.fusion": "confidence"},
    8: {"evidence.calibrate": False},
    9: {"evidence.refine": "none"},
    10: {"loss.intra": 0.0},
    11: {"alignment.kind": "softmax"},
    12: {"alignment.kind": "plain"},
}


def differences(one: HolmesConfig, other: HolmesConfig) -> dict[str, object]:
    return {
        f"{section}.{f.name}": getattr(getattr(other, section), f.name)
        for section in SECTIONS
        for f in fields(getattr(one, section))
        if getattr(getattr(one, section), f.name) != getattr(getattr(other, section), f.name)
    }


def test_ablations_are_the_rows_of_the_papers_table():
    rows = ablations.table("all")
    assert [row.row for row in rows] == sorted(ABLATED)
    for row in rows:
        assert differences(preset("tvr"), row.apply(preset("tvr"))) == ABLATED[row.row]
    assert ablations.FULL.apply(preset("tvr")) == preset("tvr")


def test_blocks_of_the_table():
    blocks = {name: [row.row for row in ablations.table(name)] for name in ablations.TABLES}
    assert blocks == {
        "scales": [1, 2, 3],
        "fusion": [5, 6, 7],
        "calibration": [8, 9],
        "intra": [10],
        "transport": [11, 12],
        "baselines": [*range(-3, -13, -1), -1],  # not rows of the paper
    }
    assert set(ablations.TABLE_TITLES) == set(blocks)
    with pytest.raises(HolmesError, match="unknown ablation table 'fusions'; did you mean 'fusion'"):
        ablations.table("fusions")


def test_other_comparisons():
    base = differences(preset("tvr"), ablations.BASE_OBJECTIVE.apply(preset("tvr")))
    assert base == {"loss.intra": 0.0, "loss.inter": 0.0}
    best = differences(preset("tvr"), ablations.BEST_CLIP.apply(preset("tvr")))
    assert best == {"alignment.kind": "best_clip"}


@pytest.mark.parametrize(
    "name, key",
    [
        ("tau", "evidence.inter_temperature"),
        ("beta", "evidence.beta"),
        ("dustbin", "alignment.dustbin_ratio"),
    ],
)
def test_sweeps_change_one_setting(name, key):
    values = []
    swept, candidates = ablations.sweep(name)
    for value in candidates:
        config = with_changes(preset("tvr"), {swept: value})
        values.append(setting(config, key))
        assert set(differences(preset("tvr"), config)) <= {key}
    assert values == sorted(set(values))
    assert len(values) > 4
    with pytest.raises(HolmesError, match="unknown sweep parameter 'gamma'"):
        ablations.sweep("gamma")


# Changes and refusals


def test_changes_take_text_and_numbers_by_either_name():
    config = with_changes(
        preset("tvr"),
        {
            "epochs": "3",
            "evidence.inter_terms": "frame,clip",
            "model.gaussian_widths": "none,0.5,2",
            "calibrate": "false",
            "learning_rate": "1e-3",
            "loss.intra": 0,
        },
    )
    assert config.training.epochs == 3
    assert config.evidence.inter_terms == ("frame", "clip")
    assert config.model.gaussian_widths == (None, 0.5, 2.0)
    assert config.evidence.calibrate is False
    assert config.training.learning_rate == 1e-3
    assert config.loss.intra == 0.0
    assert preset("tvr").training.epochs == 100


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"epoch": 3}, "unknown setting 'epoch'"),
        ({"training.epoch": 3}, "did you mean 'training.epochs'"),
        ({"epochs": "many"}, "setting epochs: 'many' is not a valid int"),
        ({"epochs": 2.5}, "'2.5' is not a valid int"),
        ({"epochs": "inf"}, "'inf' is not a valid int"),
        ({"epochs": 0}, "epochs must be positive, not 0"),
        ({"calibrate": "perhaps"}, "'perhaps' is not a valid bool"),
        ({"evidence.form": "blunt"}, "unknown value of evidence.form 'blunt'"),
        ({"alignment.kind": "flexibel"}, "did you mean 'flexible'"),
        ({"inter_terms": "frame,clips"}, "unknown inter_terms entry 'clips'; did you mean 'clip'"),
        ({"inter_terms": ()}, "inter_terms"),
        ({"inter_temperature": 0}, "temperatures must be positive"),
        ({"beta": 1}, "beta 1.0 is outside"),
        ({"smoothing": 1.2}, "smoothing 1.2 is outside"),
        ({"dropout": 1}, "dropout 1.0 is outside"),
        ({"dropout": "nan"}, "setting dropout: 'nan' is not a valid float"),
        ({"model.width": 385}, "385 is not divisible by 4 heads"),
        ({"heads": 0}, "heads"),
        ({"gaussian_widths": ()}, "gaussian_widths"),
        ({"mixing_temperature": -1}, "mixing_temperature must be positive"),
        ({"frame_weight": 0.9}, "frame_weight \\+ clip_weight must be 1, not 1.4"),
        ({"dustbin_ratio": 0}, "dustbin_ratio 0.0 is outside"),
        ({"iterations": 0}, "iterations > 0"),
        ({"hard_pool": 0}, "hard_pool"),
        ({"batch_videos": 1}, "batch_videos must be at least 2"),
        ({"learning_rate": -1}, "learning_rate must not be negative"),
        ({"lr_warm_up": 1}, "lr_warm_up 1.0 is outside"),
        ({"patience": -1}, "patience must not be negative"),
        ({"margin": "inf"}, "setting margin: 'inf' is not a valid float"),
        ({"held_out": 1}, "held_out 1.0 is outside"),
        ({"warm_up_epochs": -1}, "warm_up_epochs must not be negative"),
    ],
)
def test_bad_changes_are_refused_in_one_line(changes, message):
    with pytest.raises(HolmesError, match=message) as refusal:
        with_changes(preset("tvr_dual"), changes)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", PRESETS)
def test_settings_survive_json(name):
    config = preset(name)
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_json_is_checked_field_by_field():
    good = to_dict(preset("tvr"))
    for spoilt, message in (
        (good | {"modle": {}}, "unknown config field 'modle'; did you mean 'model'"),
        (good | {"model": good["model"] | {"depth": 3}}, "unknown config.model field 'depth'"),
        (good | {"model": {"width": 8}}, "config.model is incomplete"),
        (good | {"loss": 5}, "config.loss must be an object, not 5"),
        (good | {"loss": good["loss"] | {"margin": "wide"}}, "config.loss.margin is 'wide', not a fin"),
        ({}, "config is incomplete"),
        ([], "config must be an object"),
    ):
        with pytest.raises(HolmesError, match=message):
            from_dict(spoilt)


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(AttributeError):
        preset("tvr").loss.intra = 1.0  # type: ignore[misc]


def test_sections_refuse_contradictions_when_they_are_made():
    for make in (
        lambda: ModelConfig(video_width=4, text_width=4, width=10, heads=4),
        lambda: EvidenceConfig(beta=0.0),
        lambda: ScoreConfig(frame_weight=0.5, clip_weight=0.6),
        lambda: replace(TrainingConfig(), epochs=-1),
    ):
        with pytest.raises(HolmesError):
            make()
