"""The Python in the documents works."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, limit, serve

from weir import Client


PAGES = [
    ("clients/python/README.md", 7),
    ("docs/migrate/zae-limiter.md", 2),
    ("docs/start/python.md", 1),
    ("README.md", 1),
]


def blocks(document: Path) -> list[str]:
    """Return the fenced Python of a document."""
    return re.findall(r"^```python(?: \S+)?\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


def ask_model() -> Any:
    return SimpleNamespace(total_tokens=740, text="Hello")


async def ask_model_async() -> Any:
    return ask_model()


@pytest.mark.parametrize(("document", "least"), PAGES)
def test_the_blocks_run_in_order(document: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_SERVER", "")  # so that what a block sets is undone
    run = 0
    rendered: list[int] = []
    names: dict[str, Any] = {"ask_model": ask_model, "ask_model_async": ask_model_async, "render": rendered.append}
    with serve() as url:
        with Client(url) as client:
            limit(client, "rpm:60/min", "tpm:50K/min")
            if document == "README.md":  # its block is part of a program
                names["client"] = Client(url)
        for block in blocks(ROOT / document):
            if "zae_limiter" in block:
                ast.parse(block)
                continue
            exec(compile(block.replace("http://127.0.0.1:8080", url), document, "exec"), names)
            run += 1
        for client in [c for c in names.values() if isinstance(c, Client)]:
            client.close()
    assert run >= least
    assert document != "clients/python/README.md" or rendered == [0, 1, 2]


def test_the_environment_of_the_documents_is_that_of_the_client() -> None:
    text = (ROOT / "clients/python/README.md").read_text()
    assert set(re.findall(r"WEIR_\w+", text)) == {"WEIR_SERVER", "WEIR_TOKEN", "WEIR_NAMESPACE"}
