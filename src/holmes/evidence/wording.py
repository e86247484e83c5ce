"""All sentences of an answer, written from its distribution."""

from __future__ import annotations

from collections.abc import Sequence

from holmes.evidence.kinds import HALF, LIKELY, AnswerKind

CERTAIN = 0.95  # from here on more words would change nothing
NUMBERS = ("no", "one", "two", "three", "four", "five", "six")
NOT_JUDGED = "not judged"
PERHAPS_NOT_HERE = "perhaps not here"
NOTHING_TO_COMPARE = "There is nothing to compare it with."
BEST_MOMENT = "The moment shown is where it fits best."
UNCALIBRATED = (
    "These videos fit best, in this order. The model is not calibrated, so there are no probabilities."
)
CALIBRATE = "To get probabilities, run 'holmes index calibrate' with sentences whose videos you know."
NOT_A_SENTENCE = "Calibration covers sentences, not pictures, so there is no probability."
MORE_THAN_A_SENTENCE = "Calibration covers single sentences, so there is no probability."
ABSTAINED = "I do not know"
READS_ENGLISH = (
    "This model reads English only. It compares a sentence with what can be seen, not with names or sounds."
)
ASK_IN_ENGLISH = "Describe in English what can be seen."
ADD_A_DETAIL = "Add a detail that tells them apart."
SAY_MORE = "Say more about what can be seen: who or what is there, what happens, and where."
SAY_MORE_WORDS = "Add more of the words that are said or shown."
OTHER_WORDS = "Try other words for the same thing."


def explain(
    kind: AnswerKind,
    group: int,
    probabilities: Sequence[float],
    none: float,
    names: Sequence[str] = (),
    sources: Sequence[Sequence[float]] = (),
) -> tuple[str, str]:
    """A sentence on the answer, and one on what would help.

    `probabilities`, `names` and `sources` are those of the first videos; where no names are known, they are
    called hits.
    """
    first = names[0] if names else "the first hit"
    leads, together = percent(probabilities[0]), percent(min(1.0, sum(probabilities[:group])))
    missing = _sentence(f"{percent(none)} chance that it is not in your collection.")
    match kind:
        case AnswerKind.PRECISE if group > 1:
            shown = (
                f"{_count(group)} videos show the same moment: {together} chance that one of them is right."
            )
            return f"{_sentence(shown)} {missing}", "Any of them will do."
        case AnswerKind.PRECISE:
            word = "Likely" if likely(probabilities[0]) else "Best guess"
            helps = BEST_MOMENT if probabilities[0] >= CERTAIN else "Add a detail to be more certain."
            return f"{word}: {first} ({leads}). {missing}", helps
        case AnswerKind.SEVERAL_FIT:
            shown = f"{together} chance that it is one of {_count(group)} videos ({first}: {leads})."
            asked = f"{which_of(names, group)} " if len(names) > 1 else ""
            return f"{_sentence(shown)} {missing}", f"{asked}{ADD_A_DETAIL}"
        case AnswerKind.TOO_LITTLE:
            helps = SAY_MORE_WORDS if words_lead(sources) else SAY_MORE
            return f"Not enough to tell. The likeliest video is {first} ({leads}). {missing}", helps
    word = "Likely" if likely(none) else "Perhaps"
    return (
        f"{word} not in your collection ({percent(none)}). The nearest is {first} ({leads}).",
        OTHER_WORDS,
    )


def kind_words(kind: AnswerKind, none: float) -> str:
    """The kind as people say it. Where it is more likely here than not, it does not seem missing."""
    return PERHAPS_NOT_HERE if kind == AnswerKind.NOT_HERE and not shown_at_least(none, HALF) else kind.words


def words_lead(sources: Sequence[Sequence[float]]) -> bool:
    """Whether spoken or written words are stronger evidence for the first video than its pictures."""
    return bool(sources) and max(sources[0][1:]) > sources[0][0]


def abstained(probability: float, least: float) -> str:
    """Why there is no answer."""
    return f"The likeliest video has {percent(probability)}, less than the {percent(least)} you asked for."


def which_of(names: Sequence[str], group: int) -> str:
    """The question which video of a group is meant; some of it may not be named."""
    more = group - len(names)
    asked = [*names[:group], *([] if more < 1 else ["another one" if more == 1 else f"one of {more} others"])]
    return f"Is it {', '.join(asked[:-1])} or {asked[-1]}?"


def not_all_searched(missing: Sequence[str]) -> str:
    """What an answer adds if these shards did not answer."""
    named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
    return f"This covers only the shards that answered: {named} did not."


def nobody_says(phrases: Sequence[str]) -> str:
    """What an answer says first if no video has the quoted words."""
    return f"No video says or shows {' or '.join(f'“{phrase}”' for phrase in phrases)}."


def likely(probability: float) -> bool:
    """Whether a probability, as it is shown, is called likely."""
    return shown_at_least(probability, LIKELY)


def shown_at_least(probability: float, least: float) -> bool:
    """Whether a probability, as it is shown, reaches this."""
    return round(100 * probability) >= 100 * least


def percent(probability: float) -> str:
    """Rounded, but never to a certainty that nobody has."""
    if 0 < probability < 0.01:
        return "under 1%"
    return "over 99%" if 0.99 < probability < 1 else f"{probability:.0%}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _count(group: int) -> str:
    return NUMBERS[group] if group < len(NUMBERS) else str(group)
