"""Which part of a sentence is about what is seen, said and written."""

from __future__ import annotations

import pytest

from holmes.evidence.sources import ClauseKind
from holmes.index.answer.words import pictured, word_queries
from holmes.index.engine.passages import WordQuery

BARE, BESIDE, SAID, WRITTEN, QUOTED, _, DESCRIBED = ClauseKind


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("a red plus sign in a field", [(BARE, "a red plus sign in a field")]),
        ("a man cooks while a dog sleeps", [(BARE, "a man cooks while a dog sleeps")]),
        ("someone says that the train is late", [(SAID, "the train is late")]),
        ("a sign that reads no entry", [(WRITTEN, "no entry")]),
        ("a sign says no entry", [(WRITTEN, "no entry")]),
        ("a red ball while someone talks about trains", [(BESIDE, "a red ball"), (SAID, "trains")]),
        ("someone mentions trains while a ball rolls", [(BESIDE, "a ball rolls"), (SAID, "trains")]),
        ("she says hello and a sign reads exit", [(SAID, "hello"), (WRITTEN, "exit")]),
        ('"last train"', [(QUOTED, '"last train"')]),
        ('"he said no to us"', [(QUOTED, '"he said no to us"')]),
        ('someone says "that is what it says"', [(SAID, '"that is what it says"')]),
        ('"what he said" and a sign reads "it is"', [(QUOTED, '"what he said"'), (WRITTEN, '"it is"')]),
        (
            'a red ball and "the train says hello"',
            [(BESIDE, "a red ball"), (QUOTED, '"the train says hello"')],
        ),
        ("a man “who said no” at sea", [(BESIDE, "a man"), (BESIDE, "at sea"), (QUOTED, "“who said no”")]),
        ("someone says", [(BARE, "someone says")]),
        ("ein roter Ball", [(BARE, "ein roter Ball")]),
    ],
)
def test_a_sentence_is_read_as_clauses(sentence: str, expected: list[tuple[ClauseKind, str]]) -> None:
    assert [(clause.kind, clause.text) for clause in WordQuery.of(sentence).clauses] == expected
    beside = [text for kind, text in expected if kind == BESIDE]
    assert pictured([sentence]) == [" ".join(beside) or sentence]


@pytest.mark.parametrize(
    ("sentence", "kinds"),
    [
        ("a man plays guitar", (DESCRIBED,)),
        (" Two dogs run", (DESCRIBED,)),
        ("someone opens a box", (DESCRIBED,)),
        ("there are people on a hill", (DESCRIBED,)),
        ("A video of an owl", (DESCRIBED,)),
        ("the man plays guitar", (BARE,)),
        ("there is no try", (BARE,)),
        ("apples fall from a tree", (BARE,)),
        ("one a day", (BARE,)),
        ("people", (BARE,)),
        ("a man says hello", (BESIDE, SAID)),
        ('a man and "no entry"', (BESIDE, QUOTED)),
        ("a sign that reads no entry", (WRITTEN,)),
    ],
)
def test_a_description_is_known_by_how_it_opens(sentence: str, kinds: tuple[ClauseKind, ...]) -> None:
    assert [query.kinds for query in word_queries([sentence], "")] == [kinds]


@pytest.mark.parametrize(
    "sentence", ['"he said no to us"', 'she says "he said no to us"', 'a sea, "he said no to us"']
)
def test_quoted_words_are_looked_for_as_they_stand(sentence: str) -> None:
    assert WordQuery.of(sentence).phrases == ("he said no to us",)
