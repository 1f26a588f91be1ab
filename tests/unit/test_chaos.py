"""The text that names the faults of a test."""

import pytest

from streamkit.chaos import Chaos


def test_text_names_the_faults_and_comes_back() -> None:
    """What is printed at a failure is what repeats it."""
    text = "seed=7,duplicate=1%,reorder=2%,drop-connection=0.5%,delay=20ms"
    chaos = Chaos.parse(text)
    assert chaos == Chaos(7, duplicate=0.01, reorder=0.02, drop_connection=0.005, delay=0.02)
    assert str(chaos) == text
    assert Chaos.parse(" delay = 2s , seed=1 ") == Chaos(1, delay=2.0)


def test_without_a_seed_one_is_chosen() -> None:
    """The chosen seed is in the text."""
    chaos = Chaos.parse("duplicate=1%")
    assert Chaos.parse(str(chaos)) == chaos


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("duplicates=1%", r"'duplicates=1%' is not one of seed=7, duplicate=1%"),
        ("seed", "'seed' is not one of"),
        ("seed=x", "the seed 'x' is not a number"),
        ("duplicate=1", "'duplicate=1' is not a share from 0% to 100%"),
        ("reorder=101%", "'reorder=101%' is not a share"),
        ("delay=5", "the delay '5' is not a time such as 20ms"),
        ("delay=61s", "at most 60s"),
        ("seed=1,seed=2", "has seed twice"),
    ],
)
def test_wrong_text_is_refused(text: str, said: str) -> None:
    """The error names the part and what may stand there."""
    with pytest.raises(ValueError, match=said):
        Chaos.parse(text)


def test_kinds_of_events_do_not_change_each_other() -> None:
    """Each kind has the same numbers for the same seed, and others than other kinds."""
    chaos = Chaos(7)
    first = [chaos.draws("sends").random() for _ in range(2)]
    assert first[0] == first[1] != chaos.draws("acceptances").random()
    assert Chaos(8).draws("sends").random() != first[0]
