"""Attributes of an object that are made when they are first used.

They are apart from `lazy`, which every module may use and which `import toolwire` loads: these need threads.
"""

from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload
from weakref import WeakSet

T = TypeVar("T")


class lazy_attribute(Generic[T]):  # noqa: N801 -- used as `cached_property` is
    """An attribute of an object that is made when it is first used, unless it was set before.

    Threads that come first at the same time get the same one. `cached_property` does not promise that from Python 3.12
    on, and looks into the `__dict__` of the object, which makes every attribute of it several times slower to reach.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self._made: WeakSet[Any] = WeakSet()
        self._lock = RLock()

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> "Self | T":
        if instance is None:
            return self
        with self._lock:
            if instance not in self._made:
                setattr(instance, self._name, self._make(instance))
                self._made.add(instance)
        value: T = getattr(instance, self._name)
        return value

    if TYPE_CHECKING:  # it is set like any other attribute

        def __set__(self, instance: object, value: T) -> None: ...
