"""The pages on dispatch name everything that is public."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import attrs

import lardon.dispatch
import lardon.dispatch.conformance
import lardon.dispatch.memory
import lardon.dispatch.remote
import lardon.dispatch.sim
from lardon.dispatch import Observer, Operator, Records, Supervisor, spi
from lardon.dispatch.conformance import Harness
from lardon.dispatch.conformance.core import CoreHarness
from lardon.dispatch.memory import MemoryEnvironment
from lardon.dispatch.remote import RemoteHandle, RemotePool

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final = [DOCS / "dispatch.md", DOCS / "dispatch-core.md"]
MODULES: Final = (
    lardon.dispatch,
    lardon.dispatch.memory,
    lardon.dispatch.conformance,
    lardon.dispatch.remote,
    lardon.dispatch.sim,
)
HANDLES: Final = (
    spi.Backend,
    Harness,
    CoreHarness,
    MemoryEnvironment,
    Operator,
    Observer,
    Supervisor,
    Records,
    RemoteHandle,
    RemotePool,
)
# Fields that only their own room reads.
INSIDE: Final = {
    "trace",
    "step",
    "setting",
    "dump",
    "crashes",
    "swept",
    "unknown",
    "fingerprint",
    "on_waiter",
    "check_owner",
    "leave_child",
}


def test_the_pages_name_everything_public() -> None:
    """Every public name, every field of a value, and every method that somebody calls."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    words = set(re.findall(r"\w+", text))
    public: set[str] = set()
    for module in MODULES:
        public |= set(module.__all__)
        for name in module.__all__:
            kind = getattr(module, name)
            if (
                isinstance(kind, type)
                and attrs.has(kind)
                and name not in {"Check", "MemorySettings", "Timer"}
            ):
                public |= {field.name for field in attrs.fields(kind)}
    for handle in HANDLES:
        public |= {name for name in vars(handle) if not name.startswith("_")}

    assert sorted(public - words - INSIDE) == []
