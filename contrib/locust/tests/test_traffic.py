from __future__ import annotations

import collections

import pytest

from weir_locust import shapes, traffic


class Never(traffic.Spikes):
    def on(self, now: float | None = None) -> bool:
        return False


class Always(traffic.Spikes):
    def on(self, now: float | None = None) -> bool:
        return True


def test_stress() -> None:
    stress, n = traffic.Stress(spikes=Never()), 100_000
    picked = [stress.pick() for _ in range(n)]
    kinds = collections.Counter(kind for _, kind in picked)
    assert kinds["whale"] / n == pytest.approx(0.50, abs=0.01)
    assert kinds["spike-baseline"] / n == pytest.approx(0.03, abs=0.005)
    tail = collections.Counter(entity for entity, kind in picked if kind == "powerlaw")
    total, top = sum(tail.values()), [count for _, count in tail.most_common()]
    assert tail.most_common(1)[0][0] == "entity-00000"
    assert top[0] / total == pytest.approx(0.385, abs=0.01)
    assert sum(top[:10]) / total == pytest.approx(0.769, abs=0.01)
    assert sum(top[:1000]) / total == pytest.approx(0.982, abs=0.01)
    assert {e for e, kind in picked if kind == "whale"} == {"entity-whale"}
    assert traffic.Stress(spikes=Always()).pick() == ("entity-spiker", "spike")


def test_spikes_go_by_the_clock() -> None:
    day = 86400
    asked_once = traffic.Spikes(seed=3)
    on = [asked_once.on(s) for s in range(day)]
    assert sum(on) / day == pytest.approx(30 / 600, rel=0.2)
    asked_often = traffic.Spikes(seed=3)
    assert [any(asked_often.on(s + f / 5) for f in range(5)) for s in range(9000)] == on[:9000]
    late = traffic.Spikes(seed=3)
    assert [late.on(s) for s in range(5000, 9000)] == on[5000:9000], "another process sees the same"
    assert [traffic.Spikes(seed=4).on(s) for s in range(9000)] != on[:9000]


def test_shapes() -> None:
    assert sum(length for length, _, _ in shapes.DAILY) == 86400
    assert sum(length for length, _, _ in shapes.SPIKE) == 3600
    spike = shapes.of("spike", speed=60)
    assert spike.at(0) == (50, 120)
    assert spike.at(9.9) == (50, 120)
    assert spike.at(10) == (150, 180)
    assert spike.at(59.9) == (100, 60)
    assert spike.at(60) is None
    assert shapes.of("daily").at(28_800) == (150, 2)
    with pytest.raises(ValueError, match="there are daily, spike"):
        shapes.of("weekly")
    with pytest.raises(ValueError, match="more than 0"):
        shapes.of("daily", 0)
