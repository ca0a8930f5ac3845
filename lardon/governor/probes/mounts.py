"""Which cgroup directories count for this process, per controller."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

V1: Final = 1
V2: Final = 2

# Where the hierarchies are by convention, for a machine whose mount table is hidden.
_USUAL_V2: Final = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
_USUAL_V1: Final = "/sys/fs/cgroup/{}"


class CgroupMount(NamedTuple):
    """One mounted hierarchy."""

    version: int
    point: str
    """Where it is mounted, as this process names it."""
    root: str
    """Which directory of the hierarchy shows at the mount point."""
    controllers: frozenset[str]
    """The controllers of a v1 hierarchy; empty for v2."""


class Membership(NamedTuple):
    """Where this process is, from ``/proc/self/cgroup``."""

    unified: str | None
    """Path in the v2 hierarchy."""
    by_controller: Mapping[str, str]
    """Paths in the v1 hierarchies."""


class Hierarchy(NamedTuple):
    """The directories that limit this process, from its own up to the mount root."""

    version: int
    directories: tuple[str, ...]


def parse_membership(raw: bytes) -> Membership:
    """Return the paths in ``/proc/self/cgroup``; lines that cannot be read are skipped."""
    unified: str | None = None
    by_controller: dict[str, str] = {}
    for line in os.fsdecode(raw).splitlines():
        number, _, rest = line.partition(":")
        names, separator, path = rest.partition(":")
        if not separator or not path.startswith("/"):
            continue
        if number == "0" and not names:
            unified = path
        for name in names.split(","):
            by_controller.setdefault(name, path)
    return Membership(unified, by_controller)


def parse_mounts(raw: bytes) -> tuple[CgroupMount, ...]:
    """Return the cgroup hierarchies of ``/proc/self/mountinfo``."""
    found = []
    for line in os.fsdecode(raw).splitlines():
        if " - cgroup" not in line:
            continue
        place, _, kind = line.partition(" - ")
        # id parent major:minor root point options…   -   type source options
        places, kinds = place.split(" "), kind.split(" ")
        if len(places) < 5 or len(kinds) < 3:  # noqa: PLR2004  see the line above
            continue
        root, point = _unescaped(places[3]), _unescaped(places[4])
        if kinds[0] == "cgroup2":
            found.append(CgroupMount(V2, point, root, frozenset()))
        elif kinds[0] == "cgroup":
            found.append(CgroupMount(V1, point, root, frozenset(kinds[2].split(","))))
    return tuple(found)


def _unescaped(path: str) -> str:
    # The kernel writes these four as octal numbers, the backslash among them.
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path


def hierarchy(
    controller: str, root: str, membership: Membership, mounts: Sequence[CgroupMount]
) -> Hierarchy | None:
    """
    Return the directories whose *controller* limits count for this process.

    A controller that ``/proc/self/cgroup`` lists on a mounted v1 hierarchy is read
    there, any other from v2: a hybrid machine has both.

    Args:
        controller: such as ``memory``; the empty name asks for v2 itself.
        root: the filesystem root that the paths are below.
        membership: where the process is.
        mounts: the mount table; empty stands for the usual places.

    """
    if not mounts:
        mounts = _usual_mounts(controller, root)
    path = membership.by_controller.get(controller) if controller else None
    v1 = [mount for mount in mounts if controller in mount.controllers]
    listed = path is not None or not (membership.by_controller or membership.unified)
    if v1 and listed and (chain := _chain(root, path or "/", v1)):
        return Hierarchy(V1, chain)
    v2 = [mount for mount in mounts if mount.version == V2]
    if v2 and (chain := _chain(root, membership.unified or "/", v2)):
        return Hierarchy(V2, chain)
    return None


def _chain(root: str, path: str, mounts: Sequence[CgroupMount]) -> tuple[str, ...]:
    """Return the process's directory and its ancestors, each below the mount point."""
    # The mount that shows the most of the hierarchy comes first: it has more ancestors.
    for mount in sorted(mounts, key=lambda mount: len(mount.root)):
        for inner in _inner_paths(path, mount.root):
            if _is_directory(root, mount.point + inner):
                return _ancestors(mount.point, inner)
    # In a namespaced container the path is one of the host, which does not exist here.
    for mount in mounts:
        if _is_directory(root, mount.point):
            return (mount.point,)
    return ()


def _inner_paths(path: str, mount_root: str) -> list[str]:
    if ".." in path.split("/"):
        # The process is outside of the namespace's root: nothing below is its own.
        return []
    path = path.rstrip("/")
    prefix = mount_root.rstrip("/")
    inside = [path[len(prefix) :]] if path == prefix or path.startswith(prefix + "/") else []
    return [*inside, path] if prefix and path else inside or [path]


def _ancestors(point: str, inner: str) -> tuple[str, ...]:
    chain = []
    while inner:
        chain.append(point + inner)
        inner = inner[: inner.rfind("/")]
    return (*chain, point)


def _usual_mounts(controller: str, root: str) -> list[CgroupMount]:
    point = _USUAL_V1.format(controller)
    if controller and _is_directory(root, point):
        return [CgroupMount(V1, point, "/", frozenset({controller}))]
    return [CgroupMount(V2, point, "/", frozenset()) for point in reversed(_USUAL_V2)]


def below(root: str, path: str) -> str:
    """Return *path*, which is absolute, below the filesystem *root*."""
    return path if root == "/" else root.rstrip("/") + path


def _is_directory(root: str, path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(below(root, path)).st_mode)  # noqa: PTH116  a str path
    except (OSError, ValueError):
        return False
