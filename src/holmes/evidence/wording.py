"""Every sentence that a person reads in an answer."""

from __future__ import annotations

from collections.abc import Sequence

from holmes.evidence.kinds import AnswerKind

NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
NOT_JUDGED = "not judged"
NOTHING_TO_COMPARE = "There is nothing to compare it with."
BEST_MOMENT = "The moment shown is where it fits best."
UNCALIBRATED = "These videos fit best, in this order. How sure that is, this model cannot say yet."
CALIBRATE = "'holmes index calibrate' teaches it with sentences whose videos you know."
NOT_A_SENTENCE = "Calibration covers sentences, not pictures, so there is no probability."
ABSTAINED = "I do not know."
READS_ENGLISH = (
    "This model reads English. It knows no other language, and neither names, sounds nor written text."
)
ASK_IN_ENGLISH = "Ask in English."


def explain(
    kind: AnswerKind, group: int, first: float, together: float, little: bool = False, terse: bool = False
) -> tuple[str, str]:
    """A sentence on the answer, and one on what would help.

    `first` and `together` are the probabilities of the first video and of the group. `little` says that there
    is less evidence than nearly all answerable queries had, `terse` that the query is a mere word or two.
    """
    many = NUMBERS[group] if group < len(NUMBERS) else str(group)
    match kind:
        case AnswerKind.PRECISE if group > 1:
            return (
                f"{many} videos show the same moment{_contained(little)}, "
                f"they are right with probability {percent(together)}.",
                "Any of them will do.",
            )
        case AnswerKind.PRECISE:
            return (
                f"One video stands out{_contained(little)}, {_first_hit(first)}",
                "Add a detail to be more certain.",
            )
        case AnswerKind.SEVERAL_FIT:
            return (
                f"{many} videos fit{_contained()}, one of them is right with probability "
                f"{percent(together)}, and the first with {percent(first)}.",
                "Add a detail that tells them apart.",
            )
        case AnswerKind.TOO_LITTLE:
            begins = "A word or two say little" if terse else "Too many videos fit"
            return (
                f"{begins}{_contained()}, {_first_hit(first)}",
                "Say more about what can be seen: who or what is there, what happens, and where.",
            )
    return (
        f"It is probably not here; these videos come nearest{_contained()} after all, {_first_hit(first)}",
        "Other words for the same thing may find it.",
    )


def which_of(names: Sequence[str], more: int) -> str:
    """The question which of these videos is meant, and whether it is one of `more` that are not named."""
    asked = [*names, *([] if more < 1 else ["another one" if more == 1 else f"one of {more} more"])]
    return f"Is it {', '.join(asked[:-1])} or {asked[-1]}?"


def not_all_searched(missing: Sequence[str]) -> str:
    """What an answer adds if these shards did not answer."""
    named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
    return f"This counts only what was searched: {named} did not answer."


def percent(probability: float) -> str:
    """Rounded, but never to a certainty that nobody has."""
    if 0 < probability < 0.01:
        return "under 1%"
    return "over 99%" if 0.99 < probability < 1 else f"{probability:.0%}"


def _contained(little: bool = False) -> str:
    """What every probability presupposes, and whether that is doubtful."""
    if little:
        return ", on little evidence: it may be missing from your collection. If it is there"
    return ". If your collection contains it"


def _first_hit(probability: float) -> str:
    return f"the first hit is right with probability {percent(probability)}."
