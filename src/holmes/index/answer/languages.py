"""Detect sentences in languages that a model cannot read."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

from holmes.evidence import wording
from holmes.evidence.judging import Diagnosis
from holmes.evidence.kinds import AnswerKind

ENGLISH_ALONE = ("pocket", "minilm")
ENGLISH_WORDS = (
    "a an the and or of in on at to from with by for is are was were be being has have his her their its it "
    "he she they who while into over under up down out off this that there some two no not"
)
# Function words of other languages.
OTHER_WORDS = (
    "der das ein eine einen einem einer und ist sind mit auf im den dem von zu nicht ich wird "
    "le la les un une des et est sont dans avec sur pour du au qui "
    "el los las unos y es son con en por para que una del al "
    "il lo gli uno di che nel nella sul sulla per sta os um uma e com na do da dos em "
    "een het de van zijn op met aan ett och som med av jest nie bir ve"
)
ENGLISH = frozenset(ENGLISH_WORDS.split())
OTHERS = frozenset(OTHER_WORDS.split()) - ENGLISH


def is_foreign(sentence: str) -> bool:
    """Whether it has another script, or more function words of other languages than of English."""
    letters = [letter for letter in sentence if letter.isalpha()]
    latin = sum("LATIN" in unicodedata.name(letter, "") for letter in letters)
    if letters and latin < len(letters) / 2:
        return True
    words = ["".join(filter(str.isalpha, word)) for word in sentence.lower().split()]
    return sum(word in OTHERS for word in words) > sum(word in ENGLISH for word in words)


def with_language(diagnosis: Diagnosis, sentence: str, model: dict[str, object]) -> Diagnosis:
    """Say what the model can read where a sentence in another language found little evidence.

    Nothing fits what it could not read.
    """
    reads_english = model.get("text", model.get("name")) in ENGLISH_ALONE
    if diagnosis.kind in ("precise", "unknown") or not reads_english or not is_foreign(sentence):
        return diagnosis
    if diagnosis.kind == "several_fit":
        diagnosis = replace(diagnosis, kind="too_little", words=AnswerKind.TOO_LITTLE.words)
    return replace(
        diagnosis,
        group=0,
        fits=("nearest",) * len(diagnosis.fits),
        explanation=wording.READS_ENGLISH,
        advice=wording.ASK_IN_ENGLISH,
    )
