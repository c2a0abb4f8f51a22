"""Nothing that people bring fails, and nothing fails in silence: the table of cases."""

import pytest

from tests.benchmarks import kinds as counted
from tests.kinds import ANSWERED, REFUSED, Case, Found, all_cases, outcome


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_every_case_is_answered_or_refused_in_a_sentence(case, tmp_path):
    result, why = outcome(case, tmp_path)
    assert result == (REFUSED if case.refused else ANSWERED), why


def test_cases_are_named_once():
    names = [str(case) for case in all_cases()]
    assert len(set(names)) == len(names) > 0


def raises(error):
    def ask(path):
        raise error

    return ask


def a_case(**expected) -> Case:
    return Case("k", "n", lambda folder: folder, **expected)


def test_every_outcome_can_be_told_apart(tmp_path):
    """A check that cannot fail checks nothing."""
    found = {"a.png": {"label": "cat"}}
    answers = {"ask": lambda path: Found("It says so.", found)}
    sentence = raises(ValueError("It is damaged."))
    outcomes = {
        "answered": [
            a_case(**answers, images={"a.png": {"label": "cat"}}, says=("so",)),
            a_case(**answers, images=1),
        ],
        "refused in a sentence": [a_case(ask=sentence, refused="damaged")],
        "wrong": [
            a_case(**answers, images=2),
            a_case(**answers, images={"a.png": {"label": "dog"}}),
            a_case(**answers, images={"b.png": {}}),
            a_case(**answers, says=("other",)),
            a_case(**answers, never=("so",)),
            a_case(**answers, refused="damaged"),
            a_case(ask=sentence),
            a_case(ask=sentence, refused="other"),
        ],
        "traceback": [
            a_case(ask=raises(TypeError("x")), refused="x"),
            a_case(ask=raises(KeyError("x")), refused="x"),
            a_case(ask=raises(ValueError("two\nlines.")), refused="two"),
            a_case(ask=raises(ValueError("pyarrow failed.")), refused="failed"),
        ],
    }
    for wanted, cases in outcomes.items():
        assert [outcome(case, tmp_path)[0] for case in cases] == [wanted] * len(cases)


def test_the_benchmark_counts_by_kind(monkeypatch):
    """A row for each kind, what went wrong below the table."""
    fails = raises(TypeError("no such thing"))
    cases = [a_case(), a_case(ask=fails), Case("other", "n", lambda folder: folder)]
    cases = [
        cases[1],
        *(Case(c.kind, "x", c.make, ask=lambda p: Found()) for c in cases),
    ]
    monkeypatch.setattr(counted, "all_cases", lambda: cases)
    result = counted.run("", None)
    assert result["kinds"]["k"] == {
        "tried": 3,
        "answered": 2,
        "refused in a sentence": 0,
        "wrong": 0,
        "traceback": 1,
    }
    assert result["kinds"]["all"]["tried"] == 4
    assert "| k | 3 | 2 | 0 | 0 | 1 |" in result["lines"]
    assert result["lines"][-1] == "k: n: TypeError: no such thing"
