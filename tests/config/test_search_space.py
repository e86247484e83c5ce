"""What is searched: the preset is always inside, and the search keeps the method."""

from __future__ import annotations

import pytest

from holmes.config.presets import PRESETS, preset, read_settings, save_settings
from holmes.config.schema import with_changes
from holmes.config.search_space import (
    SPACE,
    Choice,
    Range,
    apply,
    first_trials,
    label,
    setting_of,
    space_for,
    suggest,
)
from holmes.errors import HolmesError


class Fixed:
    """Suggests what it is told, and refuses what lies outside."""

    def __init__(self, values):
        self.values = values

    def suggest_float(self, name, low, high, *, log=False):
        assert low <= self.values[name] <= high and (low > 0 or not log)
        return self.values[name]

    suggest_int = suggest_float

    def suggest_categorical(self, name, choices):
        assert self.values[name] in choices
        return self.values[name]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_the_first_trial_of_its_own_space(name):
    config = preset(name)
    space = space_for(config)
    own, *_ = first_trials(config, space)
    found = suggest(Fixed(own), space)
    assert found.pop("model.dropout") == pytest.approx(config.model.dropout, abs=0.026)  # to multiples of .05
    assert found == {name: setting_of(config, name) for name in found} and len(found) == len(space) - 1
    assert apply(config, {}).training.epochs == config.training.epochs


def test_a_weight_of_zero_stays_zero_and_blocks_are_those_of_our_encoder():
    baseline = {each.setting for each in space_for(preset("ms_sl_charades"))}
    assert baseline.isdisjoint({"loss.contrastive_cosine", "model.gaussian_widths"})
    assert {each.setting for each in space_for(preset("charades_plus"))} == {each.setting for each in SPACE}


def test_known_good_starts_follow_the_preset():
    config = preset("charades_plus")
    own, *starts = first_trials(config, space_for(config))
    tried = [(each["model.dropout"], each["loss.contrastive_cosine"]) for each in starts]
    assert tried == [(0.5, 1.0), (0.5, 0.5), (0.4, 0.5)]
    assert all(each["model.width"] == own["model.width"] for each in starts)
    for each in starts:
        suggest(Fixed(each), space_for(config))  # inside the space
    # A baseline has no InfoNCE on cosines: what is left of two starts is the same, and is tried once.
    baseline = preset("gmmformer_charades")
    _, *left = first_trials(baseline, space_for(baseline))
    assert all("loss.contrastive_cosine" not in each for each in left)
    assert len(left) == len({tuple(each.items()) for each in left}) >= 2


def test_fixed_settings_are_not_searched():
    found = {each.setting for each in space_for(preset("charades_plus"), ["dropout", "training.epochs"])}
    assert (
        "model.dropout" not in found and "training.epochs" not in found and "loss.contrastive_cosine" in found
    )
    with pytest.raises(HolmesError, match="dropuot"):
        space_for(preset("charades_plus"), ["dropuot"])


def test_ranges_widen_to_the_preset():
    assert Range("model.dropout", 0.1, 0.6).around(0.8) == Range("model.dropout", 0.1, 0.8)
    assert Choice("model.width", (128, 256)).around(512).values == (128, 256, 512)
    assert Choice("model.width", (128, 256)).around(128).values == (128, 256)


def test_lists_are_suggested_by_their_text_and_steps_are_rounded():
    config = with_changes(preset("charades_plus"), {"gaussian_widths": "none,3"})
    space = space_for(config)
    own, *_ = first_trials(config, space)
    assert own["model.gaussian_widths"] == "none,3" == label((None, 3.0))
    found = suggest(Fixed(own | {"model.dropout": 0.437}), space)
    assert found["model.gaussian_widths"] == (None, 3.0) and found["model.dropout"] == 0.45


def test_stage_one_keeps_its_share_of_the_epochs():
    config = preset("charades_plus")  # 20 of 100
    changed = apply(config, {"training.epochs": 40, "model.dropout": 0.5}, "other")
    assert (changed.training.warm_up_epochs, changed.training.patience, changed.name) == (8, 0, "other")


def test_settings_in_a_file_are_a_preset(tmp_path):
    config = apply(preset("charades_plus"), {"model.dropout": 0.5}, "mine")
    save_settings(tmp_path / "best.json", config)
    assert preset(str(tmp_path / "best.json")) == config


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "contains no settings"),
        ('{"format": "holmes-run", "config": {}}', "contains no settings"),
        ('{"format": "holmes-settings", "version": 9, "config": {}}', "version 9"),
        ('{"format": "holmes-settings", "version": 1, "config": {"name": "a"}}', "model"),
        ("{", "not valid JSON"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, content, said):
    (tmp_path / "best.json").write_text(content)
    with pytest.raises(HolmesError, match=said):
        read_settings(tmp_path / "best.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(HolmesError, match=r"none\.json does not exist"):
        preset(str(tmp_path / "none.json"))
