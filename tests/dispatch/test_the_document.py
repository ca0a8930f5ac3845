"""Every sentence of the document on the memory adapter has a test that names it."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Final

import pytest

from tests.dispatch.sentences import RULES, SENTENCES

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
CITED: Final = re.compile(r"Seed 000, ([A-Z]\d+(?:, [A-Z]\d+)*)")


@functools.cache
def cited() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for group in CITED.findall(ast.get_docstring(node) or ""):
                    for key in group.split(", "):
                        found.setdefault(key, []).append(f"{path.name}::{node.name}")
    return found


@pytest.mark.parametrize("key", SENTENCES)
def test_a_sentence_has_a_test(key: str) -> None:
    assert cited().get(key), f"no test names {key}: {SENTENCES[key]}"


def test_every_sentence_that_is_cited_is_in_the_table() -> None:
    assert set(cited()) <= set(SENTENCES)


@pytest.mark.parametrize("number", range(1, 24))
def test_a_rule_has_a_test(number: int) -> None:
    """dispatch.md, section 2: rules 1 to 23, most of them sentences of the document too."""
    texts = [path.read_text(encoding="utf-8") for path in HERE.glob("test_memory_*.py")]
    texts += [(HERE / f"test_{name}.py").read_text() for name in ("settings", "conformance")]

    assert any(RULES[number] in text for text in texts)
