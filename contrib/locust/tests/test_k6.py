"""Tests of the k6 scripts without k6: both are checked for syntax, and the HTTP one runs under a stand-in."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from conftest import ROOT

K6 = ROOT / "contrib" / "k6"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node reads JavaScript")


@pytest.mark.parametrize("script", ["http.js", "grpc.js"])
def test_syntax(script: str) -> None:
    source = (K6 / script).read_text()
    command = ["node", "--input-type=module", "--check"]
    checked = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    broken = subprocess.run(command, input=source + "}", capture_output=True, text=True, check=False)
    assert broken.returncode != 0, "node looks"


def test_http(server: str) -> None:
    run = subprocess.run(["node", str(K6 / "standin.mjs"), server], capture_output=True, text=True, check=True)
    told = json.loads(run.stdout)
    calls = [(s["call"], s["status"]) for s in told["sent"]]
    assert calls == [("limits", 200)] * 3 + [("acquire", 200), ("adjust", 200)]
    assert told["checks"] == {"limits are set": True, "the lease is adjusted": True}
    assert told["metrics"]["weir_admitted"] == 1


def test_grpc_knows_the_proto() -> None:
    source = (K6 / "grpc.js").read_text()
    proto = (ROOT / "api" / "weir" / "v1" / "limiter.proto").read_text()
    for method in re.findall(r"invoke\('(\w+)'", source):
        assert f"rpc {method}({method}Request)" in proto
    for message, fields in {
        "AcquireRequest": ["string entity", "string resource", "map<string, int64> tokens"],
        "AcquireResponse": ["bool allowed", "string lease", "bool degraded"],
        "AdjustRequest": ["string lease", "map<string, int64> tokens"],
    }.items():
        body = proto[proto.index(f"message {message} {{") :].partition("\n}")[0]
        assert all(f"  {field} = " in body for field in fields), message
