"""The minimum detectable effect and the chance to detect an effect, beside runs with simulated noise."""

import math
import random
from statistics import NormalDist, fmean, stdev

import pytest

from placebench.stats import hodges_lehmann
from placebench.stats.verdict import detection_probability, minimum_detectable_effect


@pytest.mark.parametrize(
    ("replicates", "confidence"), [(6, 0.95), (7, 0.95), (12, 0.95), (12, 0.9779), (8, 0.99), (30, 0.95), (80, 0.95)]
)
def test_the_detectable_effect_is_found_in_four_of_five_runs(replicates: int, confidence: float) -> None:
    """Normal noise with the σ that the effect was computed for, lifted by the effect; two standard errors are 0.02."""
    chance = random.Random(7)
    known = [chance.gauss(0, 0.02) for _ in range(replicates)]
    shown, noise = minimum_detectable_effect(known, confidence=confidence) or 0.0, stdev(known)

    lifted = ([chance.gauss(shown, noise) for _ in range(replicates)] for _ in range(1600))
    found = [hodges_lehmann(each, confidence=confidence).low > 0 for each in lifted]

    assert fmean(found) == pytest.approx(0.8, abs=0.035)


def test_six_replicates_find_an_effect_when_all_agree() -> None:
    """Six values are all above 0 in 80 % of runs where each is in 0.8 to the power of a sixth."""
    noise = [-0.03, -0.01, 0.0, 0.0, 0.01, 0.03]
    by_hand = NormalDist().inv_cdf(0.8 ** (1 / 6)) * stdev(noise)

    assert minimum_detectable_effect(noise) == pytest.approx(by_hand, rel=0.02)


@pytest.mark.parametrize(("replicates", "confidence"), [(0, 0.95), (1, 0.95), (5, 0.95), (5, 0.8), (7, 0.99)])
def test_too_few_replicates_detect_nothing(replicates: int, confidence: float) -> None:
    """Without an interval no effect is ever found, however large it is."""
    values = [0.01 * place for place in range(replicates)]

    assert minimum_detectable_effect(values, confidence=confidence) is None
    assert detection_probability(1.0, values, replicates=replicates, confidence=confidence) is None


def test_the_chance_to_detect_grows_with_the_effect_and_the_replicates() -> None:
    """Chance alone finds an effect on that side in 1.6 to 2.5 % of runs; the detectable one is found in 80 %."""
    noise = [0.01 * math.sin(place) for place in range(12)]
    detectable = minimum_detectable_effect(noise) or 0.0

    def chances(replicates: int) -> list[float | None]:
        return [
            detection_probability(times * detectable, noise, replicates=replicates) for times in (0.0, 0.5, 1, -1, 2)
        ]

    assert chances(12) == pytest.approx([0.021, 0.28, 0.8, 0.8, 1.0], abs=0.02)
    assert all((more or 0) >= (fewer or 0) for more, fewer in zip(chances(30)[1:], chances(12)[1:], strict=True))


def test_without_noise_every_effect_is_detected() -> None:
    """Six equal values leave nothing for an effect to be hidden in."""
    assert minimum_detectable_effect([0.1] * 6) == 0.0
    assert detection_probability(0.01, [0.1] * 6, replicates=6) == 1.0
