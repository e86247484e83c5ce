"""Figures really show the numbers they are given."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from scipy.optimize import minimize

from figure_data import drawn, example, history, plane, timeline, transport, words
from holmes.report.figures.examples import draw_examples
from holmes.report.figures.plane import draw_plane
from holmes.report.figures.recall_bars import draw_recall
from holmes.report.figures.style import (
    DARK,
    KINDS,
    LIGHT,
    literal,
    short_number,
    spread,
    svg,
    wrapped,
)
from holmes.report.figures.timeline import draw_timelines
from holmes.report.figures.training_curves import draw_losses, draw_progress, widest_gap
from holmes.report.figures.transport import draw_transport, mass_inside


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=7), st.floats(0, 2))
def test_labels_are_kept_apart_and_move_no_more_than_they_must(wanted, gap):
    placed = spread(wanted, gap)
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(placed[order]) >= gap - 1e-9).all()
    apart = [{"type": "ineq", "fun": lambda x, a=a, b=b: x[b] - x[a] - gap} for a, b in pairwise(order)]
    best = minimize(
        lambda x: ((x - wanted) ** 2).sum(), placed + 0.1, constraints=apart, method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-12},
    )  # fmt: skip
    assert ((placed - wanted) ** 2).sum() <= ((best.x - wanted) ** 2).sum() + 1e-4


def test_labels_that_are_apart_stay():
    np.testing.assert_array_equal(spread([3.0, 0.0, 1.5], 1.0), [3.0, 0.0, 1.5])


def test_text_is_wrapped_and_taken_literally():
    assert wrapped("one two three four", 8, 2) == "one two\nthree …"
    assert literal("costs $5") == r"costs \$5"
    assert short_number(0.5) == "0.50" and short_number(0.0) == "0.00"
    assert short_number(2.54e-5) == r"$2.5\cdot10^{-5}$"


@pytest.mark.parametrize("theme", (LIGHT, DARK), ids=lambda theme: theme.name)
def test_a_theme_colours_the_figure_and_leaves_nothing_behind(theme):
    before = dict(matplotlib.rcParams)
    figure = draw_plane((plane(),), theme)
    assert to_hex(figure.get_facecolor()) == theme.paper
    assert dict(matplotlib.rcParams) == before


def test_the_same_figure_gives_the_same_bytes():
    first, again = svg(draw_plane((plane(),))), svg(draw_plane((plane(),)))
    assert first == again
    assert b"<date>" not in first and b"<metadata" not in first


def test_training_curves_hold_the_logbook():
    entries = history(6)
    figure = draw_progress(entries)
    for name in ("R@1", "R@5", "R@10", "R@100"):
        (line,) = drawn(figure, name)
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3, 4, 5, 6])
        np.testing.assert_array_equal(line.get_ydata(), [entry["select"][name] for entry in entries])
    assert "best: epoch 3\nSumR 200.0" in words(figure)
    shares = [drawn(figure, kind)[0].get_paths()[0].get_extents().height for kind in KINDS]
    np.testing.assert_allclose(shares, [25, 50, 25])
    assert set(KINDS) <= set(words(figure))


def test_losses_have_a_panel_for_each_part_that_the_run_has():
    figure = draw_losses(history(6))
    np.testing.assert_array_equal(drawn(figure, "triplet_clip")[0].get_ydata(), 0.25 + np.arange(6))
    intra = drawn(figure, "intra")[0]
    np.testing.assert_array_equal(intra.get_xdata(), [4, 5, 6])
    np.testing.assert_array_equal(intra.get_ydata(), [0.375, 0.5, 0.625])
    np.testing.assert_array_equal(drawn(figure, "learning_rate")[0].get_ydata(), [1e-3] * 6)
    assert not drawn(figure, "diversity")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert "InfoNCE" not in titles and "triplet" in titles
    assert not drawn(draw_losses(history(6, intra=False)), "intra")


def test_one_epoch_can_be_drawn():
    for figure in (draw_progress(history(1)), draw_losses(history(1))):
        assert svg(figure)
    assert drawn(draw_progress(history(1)), "R@5")[0].get_marker() == "."


def test_the_widest_gap_has_room_for_words():
    assert widest_gap([10, 20, 30, 100]) == 65
    assert widest_gap([60, 70, 80, 90]) == 30


def test_the_plane_shows_every_query_in_its_kind_and_the_thresholds():
    branches = plane("frame"), plane("clip", 1)
    figure = draw_plane(branches)
    for kind, name in enumerate(KINDS):
        groups = drawn(figure, name)  # frame: c-u, ξ-u; clip: c-u, ξ-u
        for row, branch in enumerate(branches):
            members = branch.kinds_Q == kind
            u = branch.uncertainty_Q[members]
            coarse, refined = groups[2 * row : 2 * row + 2]
            np.testing.assert_allclose(coarse.get_offsets(), np.stack([branch.consistency_Q[members], u], 1))
            np.testing.assert_allclose(refined.get_offsets(), np.stack([branch.entropy_Q[members], u], 1))
            assert to_hex(coarse.get_facecolor()[0]) == LIGHT.kinds[kind]
    assert r"$\beta_u$ = 0.02" in words(figure) and r"$\beta_p$ = 0.60" in words(figure)
    low, high = figure.axes[0].get_ylim()
    every = np.concatenate([branch.uncertainty_Q for branch in branches])
    assert low < every.min() and every.max() < high and figure.axes[0].get_yscale() == "log"


def test_transport_shows_both_plans_the_dustbin_and_the_moments():
    plans = transport()
    figure = draw_transport(plans)
    order = [1, 2, 0]  # by the beginning of the moment
    for name, plan_MC in (("Standard", plans.plain_MC), ("Flexible", plans.flexible_MC)):
        (picture,) = drawn(figure, f"{name} transport")
        np.testing.assert_allclose(picture.get_array(), 100 * plan_MC[order])
        assert picture.get_clim()[0] == 0 and picture.get_clim()[1] >= 100 * plan_MC.max()
    np.testing.assert_allclose(drawn(figure, "dustbin")[0].get_data().values, 100 * plans.dustbin_C)
    boxes = [patch for patch in figure.axes[0].patches if not patch.get_fill()]
    edges = [(box.get_x(), box.get_width()) for box in boxes]
    np.testing.assert_allclose(edges, [(-0.5, 1.5), (1.0, 1.5), (2.5, 3.0)])  # six clips, centres at 0 … 5
    inside = plans.plain_MC[0, 3:].sum()
    assert f"{100 * inside:.0f} %" in words(figure)
    svg(draw_transport(transport(moments=False)))


def test_mass_inside_counts_parts_of_clips():
    plan_MC = np.array([[0.4, 0.3, 0.2, 0.1]] * 3)
    moments_M2 = np.array([[0.0, 0.25], [0.125, 0.5], [0.0, 1.0]])
    np.testing.assert_allclose(mass_inside(plan_MC, moments_M2), [0.4, 0.2 + 0.3, 1.0])


def test_many_queries_are_cut_to_those_that_fit():
    plans = transport()
    many = type(plans)(
        "v", ["query"] * 30, np.repeat(plans.moments_M2, 10, 0), np.repeat(plans.plain_MC, 10, 0),
        np.repeat(plans.flexible_MC, 10, 0), plans.dustbin_C,
    )  # fmt: skip
    assert drawn(draw_transport(many), "Standard transport")[0].get_array().shape[0] == 8


def test_timelines_show_both_runs_and_shade_the_moment():
    shown = timeline(runs=2)
    figure = draw_timelines([shown], ["with", "without"])
    for run, name in enumerate(("with", "without")):
        own, rival = drawn(figure, name)
        np.testing.assert_array_equal(own.get_ydata(), shown.own.tracks[run].similarity_F)
        np.testing.assert_array_equal(rival.get_ydata(), shown.rival.tracks[run].similarity_F)
        np.testing.assert_allclose(own.get_xdata(), 40 * (np.arange(10) + 0.5) / 10)
        assert f"{name} {shown.own.tracks[run].score:.2f}" in words(figure)
    (band,) = drawn(figure, "moment")
    assert band.get_x() == 10 and band.get_width() == 10
    unknown = draw_timelines([timeline(seconds=None)], ["score"])
    assert unknown.axes[0].get_xlim() == (0, 100)
    assert "share of the right video, %" in words(unknown)


def test_examples_show_scores_verdicts_and_quantities():
    shown = example(kind=0)
    figure = draw_examples([shown], DARK)
    for found, verdict in zip(shown.found, ("wrong", "right", "fits"), strict=True):
        (line,) = drawn(figure, verdict)
        np.testing.assert_array_equal(line.get_ydata(), found.similarity_F)
    right = drawn(figure, "right")[0].axes
    assert to_hex(right.spines["left"].get_edgecolor()) == DARK.right
    assert to_hex(drawn(figure, "wrong")[0].axes.spines["left"].get_edgecolor()) == DARK.wrong
    text = "\n".join(words(figure))
    assert "precise (truly under-determined)" in text and "2. 0.80" in text
    assert r"u $2.5\cdot10^{-5}$   c 0.50   ξ 3.00   rank 2" in text


def test_recall_bars_are_as_long_as_the_recall():
    """The whiskers are the intervals of the table; a group of a handful of videos has none."""
    groups: dict[str, Any] = {
        "precise": {"queries": 40, "R@1": 10.0, "R@5": 20.0, "R@10": 30.0, "R@100": 90.0},
        "polysemous": {"queries": 8, "R@1": 0.0, "R@5": 12.5, "R@10": 25.0, "R@100": 100.0},
    }
    groups["precise"]["intervals"] = {cutoff: [4.5, 31.0] for cutoff in groups["precise"]}
    groups["polysemous"]["intervals"] = {cutoff: [None, None] for cutoff in groups["polysemous"]}
    figure = draw_recall({"kind of query": groups}, far=["R@100"])
    for cutoff in ("R@1", "R@5", "R@10", "R@100"):
        lengths = [bar.get_width() for bar in drawn(figure, cutoff)]
        assert lengths == [groups["precise"][cutoff], groups["polysemous"][cutoff]]
        (whisker,) = drawn(figure, f"{cutoff} interval")
        assert [tuple(end) for end in whisker.get_segments()[0]] == [(4.5, 0), (31.0, 0)]
    assert {"precise  (40)", "12.5", "R@10", "R@100 ‡"} <= {*words(figure)}
