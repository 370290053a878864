"""Which points of paths are left out, and when another fold changes nothing."""

import pytest

from distls.training.selection import Race

PATHS = [[{"alpha": a} for a in (1.0, 0.1, 0.01)], [{"alpha": a, "loss": "other"} for a in (1.0, 0.1, 0.01)]]


def judged(errors, rows=1000, **options):
    race = Race(PATHS, **{"counts": True, "prune": True, **options})
    for place, error in enumerate(errors):
        if place in race.left:
            race.judge(place, error, rows)
    return race


def test_what_is_clearly_worse_is_left_out_and_what_may_be_chance_is_not():
    race = judged([0.30, 0.11, 0.10, 0.30, 0.20, 0.09])
    assert race.fold_ended()
    # of 1000: 100 wrong is less than sqrt(190) above 90, 110 is more than sqrt(200) above it
    assert (race.left, race.best) == ([2, 5], 5)


def test_a_path_ends_where_its_error_rises():
    race = judged([0.10, 0.20, 0.01, 0.30, 0.10, 0.09])
    assert [place for place, _ in race.errors()] == [0, 1, 3, 4, 5]
    assert race.best == 5  # the third, which was never fitted, is not chosen


def test_without_prune_every_point_stays():
    race = judged([0.10, 0.90, 0.20, 0.90, 0.9, None], prune=False)
    assert race.fold_ended()
    assert race.left == list(range(6))
    assert race.errors()[5] == (5, float("inf"))


@pytest.mark.parametrize(("rows", "another"), [(1000, True), (100_000, False)])
def test_many_rows_need_no_other_fold(rows, another):
    race = judged([0.101, 0.1, 0.1, 0.2, 0.2, 0.2], rows)
    assert race.fold_ended() is another
    assert race.best == 1


def test_one_that_is_left_ends_the_race():
    race = judged([0.5, 0.01, 0.3, 0.5, 0.3, 0.2])
    assert not race.fold_ended()
    assert race.left == [1]


def test_errors_of_numbers_are_no_counts():
    race = judged([250.0, 100.0, 101.0, 300.0, 105.0, 90.0], 10_000, counts=False)
    race.fold_ended()
    assert race.left == [5]
    few = judged([250.0, 100.0, 101.0, 300.0, 105.0, 90.0], 100, counts=False)
    few.fold_ended()
    assert few.left == [1, 2, 4, 5]


def test_a_fit_that_diverged_is_not_chosen():
    race = judged([None, 0.2, None, 0.3, 0.3, 0.3])
    race.fold_ended()
    assert race.best == 1


def test_the_first_path_is_left_only_for_one_that_is_better_by_more_than_chance():
    for wrong, best in ((95, 0), (80, 1)):
        race = Race([[{"alpha": 1.0}], [{"alpha": 1.0}]], counts=True, prune=False)
        for place, count in enumerate((100, wrong)):
            race.judge(place, count / 1000, 1000)
        race.keep_first()
        assert race.best == best
