"""The Python in the documents works."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import pytest
from conftest import ROOT, Connect
from locust.env import Environment


@pytest.mark.parametrize(("document", "least"), [("contrib/locust/README.md", 2), ("docs/try/locust.md", 1)])
def test_the_blocks_run(
    document: str, least: int, server: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, _ = connect()
    admin.set_resource_defaults("gpt-4", ["rpm:60/day", "tpm:50K/day"])
    monkeypatch.setenv("WEIR_NAMESPACE", admin.namespace or "")
    text = (ROOT / document).read_text()
    program, *parts = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program, document, "exec"), names)
    caller = names["Caller"]
    caller.host = server
    user = caller(Environment(user_classes=[caller]))
    user.on_start()
    user.chat()
    for part in parts:  # of a task, which would take longer than a test
        exec(compile(dedent(part).replace("hold(90)", "hold(0)"), document, "exec"), {"self": user})
    assert 1 + len(parts) >= least
    left = {s["limit"]: s["available"] for s in admin.available("key-alice", "gpt-4")}
    assert left == {"rpm": 59, "tpm": 50_000 - 730}
