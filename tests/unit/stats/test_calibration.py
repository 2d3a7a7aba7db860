"""What a machine can resolve, on noise whose size is known."""

import random

import pytest

from placebench.errors import TooFewReplicatesError
from placebench.stats.calibration import calibrate


def noise(spread: float, *, replicates: int = 60, lean: float = 0.0) -> list[float]:
    """Log ratios of identical variants."""
    chance = random.Random(3)
    return [chance.gauss(lean, spread) for _ in range(replicates)]


def test_quiet_noise_finds_small_effects() -> None:
    """With a spread of 1 %, twelve replicates find 2 % always and 1 % mostly; thirty find both."""
    made = calibrate(noise(0.01), "cpu_s", margin=0.02, seed=1)

    assert made.passed
    assert made.power["12"]["0.02"] > 0.99
    assert 0.6 < made.power["12"]["0.01"] < made.power["30"]["0.01"]
    assert 0.005 < made.detectable["12"] < 0.013
    assert made.detectable["30"] < made.detectable["12"]


def test_loud_noise_does_not() -> None:
    """With a spread of 10 %, a change of 1 % is found no more often than noise is called one."""
    made = calibrate(noise(0.10), "cpu_s", margin=0.01, seed=1)

    assert not made.passed
    assert made.power["12"]["0.01"] < 0.15
    assert made.detectable["12"] > 0.05


def test_noise_alone_is_seldom_called_a_change() -> None:
    """Of 400 draws about 5 in 100, and of ten disjoint sixes hardly any."""
    made = calibrate(noise(0.02), "cpu_s", margin=0.01, seed=1)

    assert max(made.false_positive_rate.values()) < 0.09
    assert (made.runs_of_six, made.replicates) == (10, 60)
    assert made.false_positives <= 2


def test_a_lean_is_not_accepted() -> None:
    """A variant that is always 2 % dearer, though it is the same program, is a fault of the harness."""
    made = calibrate(noise(0.005, lean=0.02), "cpu_s", margin=0.01, seed=1)

    assert not made.passed
    assert made.false_positives == 10
    assert made.estimate == pytest.approx(0.02, abs=0.002)


def test_too_few_replicates() -> None:
    """Five identical pairs cannot say what a machine resolves."""
    with pytest.raises(TooFewReplicatesError, match="inconclusive: 5 replicates, 6 needed"):
        calibrate(noise(0.01, replicates=5), "cpu_s", margin=0.01, seed=1)


def test_the_same_seed_gives_the_same_figures() -> None:
    """Draws are of the seed."""
    values = noise(0.01, replicates=12)

    assert calibrate(values, "cpu_s", margin=0.01, seed=4) == calibrate(values, "cpu_s", margin=0.01, seed=4)
