"""A run is laid beside the published one; leaving it is said once, with likely causes."""

from __future__ import annotations

import pytest

from holmes.reproduce.on_track import Watch, left_at, off_track_message, standings
from holmes.reproduce.published import curves
from holmes.training.protocol import Protocol


def entries(totals, losses=None):
    return [
        {"epoch": place + 1, "loss": {"total": losses[place] if losses else 1.0}, "select": {"SumR": total}}
        for place, total in enumerate(totals)
    ]


@pytest.mark.parametrize("preset", ["activitynet", "charades", "tvr", "tvr_dual"])
def test_the_published_run_itself_is_on_track_and_so_is_one_a_little_off(preset):
    curve = curves()[preset]
    for shift in (-3.0, 0.0, 3.0):
        run = entries([value + shift for value in curve.SumR], curve.loss)
        assert left_at(standings(preset, Protocol.PUBLISHED, run)) is None
    late = entries([*curve.SumR[:1], *curve.SumR[:-1]], curve.loss)  # an epoch behind
    assert left_at(standings(preset, Protocol.PUBLISHED, late)) is None


def test_a_run_that_learns_nothing_leaves_within_a_few_epochs():
    for preset in curves():
        at = left_at(standings(preset, Protocol.PUBLISHED, entries([5.0] * 10)))
        assert at is not None and at.side == "below" and at.epoch <= 8, preset


def test_one_bad_epoch_is_not_enough():
    totals = [*curves()["tvr"].SumR]
    totals[50] -= 30
    assert left_at(standings("tvr", Protocol.PUBLISHED, entries(totals))) is None
    totals[51] -= 30
    assert left_at(standings("tvr", Protocol.PUBLISHED, entries(totals))).epoch == 52


def test_the_honest_protocol_is_compared_by_its_loss_alone():
    curve = curves()["tvr"]
    run = entries([300.0] * len(curve.loss), curve.loss)  # held-out videos: a small gallery
    assert left_at(standings("tvr", Protocol.HONEST, run)) is None
    run = entries([300.0] * 30, [3 * loss for loss in curve.loss[:30]])
    assert left_at(standings("tvr", Protocol.HONEST, run)).epoch == 2


def test_epochs_beyond_the_published_run_meet_its_last_one():
    curve = curves()["charades"]
    long = entries([*curve.SumR, *[curve.SumR[-1]] * 30], [*curve.loss, *[curve.loss[-1]] * 30])
    assert left_at(standings("charades", Protocol.PUBLISHED, long)) is None


def test_the_message_names_what_differs_first_and_is_said_once():
    watch = Watch("charades", Protocol.PUBLISHED)
    noted = [watch.note(entry) for entry in entries([200.0] * 6)]
    assert [leaves for _, leaves in noted] == [False, True, False, False, False, False]
    at = noted[1][0]
    message = off_track_message("run", at, ["epochs"], ["test has 6 videos"])
    assert message.startswith("run left the published run at epoch 2: SumR 200.0, published 14.2")
    assert message.index("--set (epochs)") < message.index("test has 6 videos") < message.index("gallery")


def test_presets_without_a_published_run_are_not_compared():
    assert Watch("tvr_plus", Protocol.PUBLISHED).note(entries([1.0])[0]) == (None, False)
