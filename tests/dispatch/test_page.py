"""The page on dispatch names everything that is public."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import attrs

import lardon.dispatch
import lardon.dispatch.conformance
import lardon.dispatch.memory
from lardon.dispatch import spi
from lardon.dispatch.conformance import Harness
from lardon.dispatch.memory import MemoryEnvironment

PAGE: Final = Path(__file__).parents[2] / "docs" / "dispatch.md"


def test_the_page_names_everything_public() -> None:
    """Every public name, every field of a value, and every method that somebody calls."""
    words = set(re.findall(r"\w+", PAGE.read_text(encoding="utf-8")))
    public: set[str] = set()
    for module in (lardon.dispatch, lardon.dispatch.memory, lardon.dispatch.conformance):
        public |= set(module.__all__)
        for name in module.__all__:
            kind = getattr(module, name)
            if (
                isinstance(kind, type)
                and attrs.has(kind)
                and name not in {"Check", "MemorySettings"}
            ):
                public |= {field.name for field in attrs.fields(kind)}
    for handle in (spi.Backend, Harness, MemoryEnvironment):
        public |= {name for name in vars(handle) if not name.startswith("_")}

    assert sorted(public - words) == []
