"""A mapping that cannot be changed, for values that hold one."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenMap(dict[K, V]):
    """
    A dict that refuses to change, so that it can be hashed, shared and pickled.

    `types.MappingProxyType` would be the usual choice; it can be neither pickled nor hashed.
    """

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        message = "this mapping belongs to a frozen value and cannot be changed"
        raise TypeError(message)

    __setitem__ = _refuse
    __delitem__ = _refuse
    __ior__ = _refuse
    clear = _refuse
    pop = _refuse
    popitem = _refuse
    setdefault = _refuse
    update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # dict sets None: ours are constant
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenMap[K, V]], tuple[dict[K, V]]]:
        # The default would fill an empty copy item by item.
        return FrozenMap, (dict(self),)

    def __copy__(self) -> FrozenMap[K, V]:
        return self

    def __deepcopy__(self, memo: Any) -> FrozenMap[K, V]:
        return self
