"""The arithmetic of quotas against figures worked out from Kafka's Rate, SampledStat and TokenBucket."""

import pytest

from logyard.broker.security.rates import SampledRate, TokenBucket


def test_a_rate_is_divided_by_all_windows_but_one_at_least() -> None:
    rate = SampledRate(11, 1000)
    rate.record(1000, 0)
    assert rate.per_second(0) == 100, "ten whole windows, though none has passed"
    assert rate.per_second(500) == pytest.approx(1000 / 10.5)
    rate.record(1000, 1000)
    assert rate.per_second(1000) == 200, "one window has passed, nine more are taken as empty"


def test_what_is_older_than_all_windows_is_forgotten() -> None:
    rate = SampledRate(11, 1000)
    rate.record(500, 0)
    rate.record(100, 10_500)
    assert rate.per_second(10_999) == pytest.approx(600 / 10.999)
    assert rate.per_second(11_000) == pytest.approx(100 / 10.5), "eleven windows after its last event"
    assert not rate.is_idle(21_000)
    assert rate.is_idle(21_500)
    assert rate.per_second(21_500) == 0


@pytest.mark.parametrize(("units", "wait_ms"), [(1000, 0), (1001, 10), (1500, 5000), (3000, 20_000)])
def test_the_wait_brings_the_rate_back_to_its_bound(units: int, wait_ms: int) -> None:
    rate = SampledRate(11, 1000)
    rate.record(units, 0)
    assert rate.throttle_ms(100, 0) == wait_ms


def test_after_the_wait_nothing_is_due_any_more() -> None:
    rate = SampledRate(11, 1000)
    for at in range(0, 20_000, 100):
        rate.record(30, at)
    assert rate.per_second(20_000) == pytest.approx(300)
    wait_ms = rate.throttle_ms(250, 20_000)
    assert wait_ms == pytest.approx(2000, rel=0.2), "11 s of 300 a second are 13.2 s of 250"
    assert rate.throttle_ms(250, 20_000 + wait_ms) == 0


def test_what_is_taken_back_was_never_there() -> None:
    rate = SampledRate(11, 1000)
    rate.record(700, 0)
    rate.record(-700, 0)
    assert rate.per_second(0) == 0
    assert rate.throttle_ms(1, 0) == 0


def test_a_bound_of_nothing_is_no_division_by_zero() -> None:
    rate = SampledRate(11, 1000)
    rate.record(1, 0)
    assert rate.throttle_ms(0, 0) > 3_600_000
    bucket = TokenBucket(11, 1000)
    bucket.take(1, 0, 0)
    assert bucket.throttle_ms(0, 0) > 3_600_000


def test_a_negative_bound_makes_nobody_wait() -> None:
    rate = SampledRate(11, 1000)
    rate.record(1_000_000, 0)
    assert rate.throttle_ms(-1.0, 0) == 0


def test_samples_are_bounded() -> None:
    rate = SampledRate(3, 1000)
    for at in range(0, 100_000, 1000):
        rate.record(1, at)
    assert rate.sample_count <= 4
    assert rate.per_second(99_000) == pytest.approx(1, rel=0.5)


def test_a_bucket_holds_all_windows_and_refills_at_its_rate() -> None:
    bucket = TokenBucket(11, 1000)
    assert bucket.tokens(2, 0) == 22
    bucket.take(30, 2, 0)
    assert bucket.tokens(2, 0) == -8
    assert bucket.throttle_ms(2, 0) == 4000
    assert bucket.tokens(2, 3000) == -2
    assert bucket.throttle_ms(2, 4000) == 0
    assert bucket.tokens(2, 100_000) == 22, "never more than the burst"
    bucket.take(-5, 2, 100_000)
    assert bucket.tokens(2, 100_000) == 22
    assert bucket.is_idle(111_000)
    assert not bucket.is_idle(105_000)
