"""What a machine can resolve, on noise whose size is known."""

import random
from dataclasses import asdict

import pytest

from placebench.errors import TooFewReplicatesError
from placebench.stats.calibration import _detectable_shift, calibrate


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

    assert 0.02 < min(made.false_positive_rate.values()) <= max(made.false_positive_rate.values()) < 0.09
    assert set(made.false_positive_rate) == set(made.detectable) == {"12", "30"}
    assert made.low < made.estimate < made.high
    assert asdict(made)["metric"] == "cpu_s"
    assert (made.runs_of_six, made.replicates) == (10, 60)
    assert made.false_positives <= 2


def test_a_lean_is_not_accepted() -> None:
    """A variant that is always 2 % dearer, though it is the same program, is a fault of the harness."""
    made = calibrate(noise(0.005, lean=0.02), "cpu_s", margin=0.01, seed=1)

    assert not made.passed
    assert made.false_positives == 10
    assert made.estimate == pytest.approx(0.02, abs=0.002)


def test_a_lean_the_other_way_is_not_accepted_either() -> None:
    """Of 65 replicates five are in no run of six."""
    made = calibrate(noise(0.005, lean=-0.02, replicates=65), "cpu_s", margin=0.01, seed=1)

    assert (made.passed, made.runs_of_six, made.false_positives) == (False, 10, 10)
    assert [set(effects) for effects in made.power.values()] == [{"0.01", "0.02", "0.05"}] * 2


@pytest.mark.parametrize(("margin", "passed"), [(0.0099, False), (0.01, False), (0.0101, True)])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_check_passes_within_half_the_margin(sign: int, margin: float, passed: bool) -> None:
    """The interval of six reaches from the least to the greatest, here 0.5 % to one side and 0.4 % to the other."""
    values = [sign * each for each in (-0.004, -0.002, 0.0, 0.001, 0.003, 0.005)]

    assert calibrate(values, "cpu_s", margin=margin, seed=1).passed is passed


def test_the_detectable_shift_brings_four_of_five_above_no_change() -> None:
    """Of lower limits from −1 to −10, eight lie above −8.5; limits that are above 0 need no shift."""
    assert _detectable_shift([(-float(low), 0.0) for low in range(10, 0, -1)]) == 8.0
    assert _detectable_shift([(1.0, 2.0)] * 10) == 0.0


def test_a_machine_without_noise_finds_every_effect_and_no_other() -> None:
    """Two runs of six zeros, whose intervals end at no change: it is not excluded."""
    made = calibrate([0.0] * 12, "pss_bytes", margin=0.01, seed=1)

    assert (made.passed, made.runs_of_six, made.false_positives) == (True, 2, 0)
    assert made.false_positive_rate == made.detectable == {"12": 0.0, "30": 0.0}
    assert {share for effects in made.power.values() for share in effects.values()} == {1.0}


def test_too_few_replicates() -> None:
    """Five identical pairs cannot say what a machine resolves."""
    with pytest.raises(TooFewReplicatesError, match="inconclusive: 5 replicates, 6 needed"):
        calibrate(noise(0.01, replicates=5), "cpu_s", margin=0.01, seed=1)


def test_the_same_seed_gives_the_same_figures() -> None:
    """Draws are of the seed."""
    values = noise(0.01, replicates=12)

    assert calibrate(values, "cpu_s", margin=0.01, seed=4) == calibrate(values, "cpu_s", margin=0.01, seed=4)
