"""A real Locust, headless, against a real server: each locustfile, and a master with two workers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from conftest import FILES, free_port, locust

EXPECTED = {f.stem: {"ACQUIRE"} for f in FILES.glob("*.py")} | {
    "cascade": {"ACQUIRE", "CREATE_ENTITY", "DELETE_ENTITY"},
    "llm_gateway": {"ACQUIRE", "ADJUST", "COMMIT"},
    "llm_production": {"ACQUIRE", "ADJUST", "COMMIT"},
    "max_rps_cascade": {"ACQUIRE", "CREATE_ENTITY", "DELETE_ENTITY"},
    "reject_storm": {"ACQUIRE", "RATE_LIMITED"},
    "slots": {"ACQUIRE", "COMMIT"},
    "spike": {"ACQUIRE", "ADJUST", "COMMIT"},
    "thundering_herd": {"ACQUIRE", "RATE_LIMITED"},
}
USERS = {"thundering_herd": "250", "llm_production": "40"}
FASTER = {"thundering_herd": {"WEIR_HERD_SECONDS": "1"}, "spike": {"WEIR_SHAPE": "spike", "WEIR_SHAPE_SPEED": "1200"}}
SCENARIOS = sorted(EXPECTED)


@dataclass
class Run:
    code: int
    log: str
    stats: list[dict[str, object]]

    def counts(self) -> dict[str, int]:
        """Return how many requests there were of each type."""
        counts: dict[str, int] = {}
        for s in self.stats:
            counts[str(s["method"])] = counts.get(str(s["method"]), 0) + int(str(s["num_requests"]))
        return counts

    def failures(self) -> list[dict[str, object]]:
        return [s for s in self.stats if s["num_failures"]]


def run(url: str, scenario: str, seconds: int = 2) -> Run:
    file = "llm_production" if scenario == "spike" else scenario
    args = ["-f", str(FILES / f"{file}.py"), "--headless", "--json", "--host", url]
    if scenario != "spike":
        args += ["-u", USERS.get(scenario, "10"), "-r", "100", "-t", f"{seconds}s"]
    process = locust(*args, **FASTER.get(scenario, {}), WEIR_NAMESPACE=f"run-{scenario}")
    out, log = process.communicate(timeout=60)
    ran = Run(process.returncode, log, json.loads(out) if out.startswith("[") else [])
    if seconds == 2 and ran.code == 0 and not EXPECTED[scenario] <= set(ran.counts()):
        return run(url, scenario, 10)  # two seconds may be too short on a busy machine
    return ran


@pytest.fixture(scope="module")
def runs(server: str) -> dict[str, Run]:
    """Run all scenarios, four at a time: each spends two seconds waiting."""
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(SCENARIOS, pool.map(lambda s: run(server, s), SCENARIOS), strict=True))


def test_all_scenarios_are_there() -> None:
    load = {f.stem.replace("-", "_") for f in (FILES.parents[2] / "internal" / "lab" / "traffic" / "scenarios").glob("*.yaml")}
    assert load <= set(SCENARIOS), "what weir load runs, Locust runs as well"
    assert {"simple", "max_rps", "llm_gateway", "llm_production", "stress", "hot_key"} <= load


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, runs: dict[str, Run]) -> None:
    ran = runs[scenario]
    assert ran.code == 0, ran.log
    assert ran.failures() == [], ran.log
    assert "Traceback" not in ran.log
    counts = ran.counts()
    assert EXPECTED[scenario] <= set(counts), counts
    if scenario == "reject_storm":
        assert counts["RATE_LIMITED"] > counts["ACQUIRE"]


def test_master_and_two_workers(server: str) -> None:
    port = str(free_port())
    file = ["-f", str(FILES / "cascade.py")]
    env = {"WEIR_NAMESPACE": "run-distributed"}
    master = locust(
        *file, "--headless", "--json", "--host", server, "-u", "10", "-r", "100", "-t", "3s", "--master",
        "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers", "2", **env,
    )  # fmt: skip
    workers = [locust(*file, "--worker", "--master-port", port, **env) for _ in range(2)]
    out, log = master.communicate(timeout=60)
    told = [w.communicate(timeout=60)[1] for w in workers]
    ran = Run(master.returncode, log, json.loads(out))
    assert ran.code == 0, log
    assert [w.returncode for w in workers] == [0, 0], told
    assert "2 workers connected" in log
    assert ran.failures() == []
    counts = ran.counts()
    assert counts["SET_SYSTEM_DEFAULTS"] == 1, "by the master, once"
    assert counts["CREATE_ENTITY"] == 1 + 10, (
        "the parent, and each user its child: the children of workers have it, too"
    )
    assert counts["DELETE_ENTITY"] == 1
    assert counts["ACQUIRE"] >= 10


def test_a_set_up_that_fails_ends_the_test() -> None:
    host = f"http://127.0.0.1:{free_port()}"
    process = locust("-f", str(FILES / "simple.py"), "--headless", "--host", host, "-u", "1")
    _, log = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "set up: create namespace: ConnectionRefusedError" in log
    assert "Traceback" not in log
