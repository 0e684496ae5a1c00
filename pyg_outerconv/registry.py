"""What is found by its name, and the one grammar of texts that make it.

A text is a name, with options in parentheses: ``"key-query(bias=True)"``, ``"low-rank(rank=8)"``,
``"stack(gcn, walk(2, norm=sym))"``. An option is a plain value of Python, a word, or, where it
takes such, a text itself: ``"multi_head(4, score=cosine(beta=2.0))"``. Nothing in a text is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, ClassVar, TypeVar, get_args

from .errors import RefusedType, RefusedValue, unknown
from .signatures import check_type, fits, types_of, why_not

Entry = TypeVar("Entry")

_NAME = re.compile(r"\s*([A-Za-z]\w*(?:-\w+|\+\d\w*)*)")
_TEXT = re.compile(r"[A-Za-z][\w-]*\s*(\([^()]*\))?")
# What the parser raises of text that is no expression, too deep, not Unicode, or not hashable.
_UNREADABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


class Registry(dict[str, Entry]):
    """What a kind of things registers, by name: classes, or one object of each.

    Args:
        what: the kind, in messages, such as ``"score"``.
        example: a text, in messages.
        in_order: whether a text may give options by their order, without names.
        mark: the attribute by which a class says that it is registered; see :class:`Named`.
        objects: whether an object of each class is registered, in the place of the class.
    """

    base: type[Any]

    def __init__(
        self,
        what: str,
        example: str = "name(a=1)",
        in_order: bool = False,
        mark: str = "name",
        objects: bool = False,
    ) -> None:
        super().__init__()
        self.what, self.example, self.in_order = what, example, in_order
        self.mark, self.objects = mark, objects

    def add(self, kind: type[Any]) -> None:
        """Register a class by its name; the same class may be defined again, as notebooks do.

        Raises:
            ValueError: another class has the name.
        """
        name = self.name_of(kind)
        if name in self:
            taken: Any = type(self[name]) if self.objects else self[name]
            if (taken.__module__, taken.__qualname__) != (kind.__module__, kind.__qualname__):
                rule = f"a {self.what} has a name of its own"
                raise RefusedValue(rule, "a name that is not taken", f"{name!r}, of {taken}")
        self[name] = kind() if self.objects else kind  # type: ignore[assignment]

    def name_of(self, kind: Any) -> str:
        """The name of a class in text."""
        return str(kind.name)

    def require(self, name: Any) -> Entry:
        """What is registered by exactly this name."""
        if name not in [*self]:  # which a list that is no name may be compared with
            raise RefusedValue(self.unknown(name))
        return self[name]

    def find(self, name: str) -> Entry | None:
        """What is registered by a name in text; None if nothing is."""
        return self.get(name.strip())

    def named(self, name: str) -> Entry:
        """What :meth:`find` finds; where it finds nothing, a ValueError with the nearest name."""
        entry = self.find(name)
        if entry is None:
            raise RefusedValue(self.unknown(name))
        return entry

    def unknown(self, name: Any) -> str:
        """The message for a name by which nothing is registered."""
        return unknown(self.what, name, self)

    # The grammar ----------------------------------------------------------------------------------

    def make(self, spec: Any, *arguments: Any, **options: Any) -> Any:
        """What a text describes; an object of the kind is returned as it is."""
        if isinstance(spec, self.base):
            return spec
        kind, values, written = self.read(spec)
        return self.build(kind, (*arguments, *values), {**options, **written})

    def build(self, kind: Any, arguments: Collection[Any], options: dict[str, Any]) -> Any:
        """An object of a registered class, whose signature the arguments fit, or a ValueError."""
        self.check_options(kind, options)
        if reason := why_not(kind, arguments, options):
            raise self._refusal(kind, reason)
        return kind(*arguments, **options)

    def kind_in(self, text: str) -> Entry:
        """The class that a text names, whatever its options are; an unknown name is refused."""
        match = _NAME.match(text)
        return self.named(text if match is None else match[1])

    def read(self, text: Any) -> tuple[Entry, list[Any], dict[str, Any]]:
        """The class that a text names, its options in order, and those by name, as :meth:`make`."""
        if not isinstance(text, str):
            expected = f"a {self.base.__name__} or its name"
            is_class = isinstance(text, type)
            got = f"the class, not {text.__name__}()" if is_class else type(text).__name__
            raise RefusedType(f"a {self.what} is an object or text", expected, got)
        rule = f"a {self.what} is a name with {'' if self.in_order else 'named '}options"
        expected = f"such as {self.example}, of names, options and plain values"
        refused = RefusedValue(rule, expected, repr(text))
        match = _NAME.match(text)  # which Python need not take for a name
        source = (text if match is None else f"_{text[match.end() :]}").strip()
        try:
            node = ast.parse(source, mode="eval").body
        except _UNREADABLE as error:
            raise refused from error
        return self._read(node, source, refused, match and match[1])

    def _read(
        self, node: ast.expr, source: str, refused: RefusedValue, name: str | None = None
    ) -> tuple[Entry, list[Any], dict[str, Any]]:
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        if not isinstance(call.func, ast.Name):
            raise refused
        kind: Any = self.named(name or call.func.id)
        options = [str(option.arg) for option in call.keywords if option.arg is not None]
        if len(options) < len(call.keywords):
            raise RefusedValue(f"a {self.what} is a name with named options", "name=value", "**")
        if call.args and not self.in_order:
            raise refused
        if double := next((option for option in options if options.count(option) > 1), None):
            rule = f"an option of {self.name_of(kind)} has one value"
            raise RefusedValue(rule, f"{double} once", f"{options.count(double)} times")
        self.check_options(kind, options)
        types = kind.types_in_text()
        order = [name for name in types for _ in (call.args if name.startswith("*") else "1")]
        if len(call.args) > len(order):
            raise self._refusal(kind, f"expected at most {len(order)}, got {len(call.args)}")

        def value(option: str, node: ast.expr) -> Any:
            hint = types.get(option, Any)
            result = self._value(node, hint, source, refused)
            try:
                check_type(kind.__name__, option, result, hint)
            except RefusedType as error:
                raise self._refusal(kind, error) from error
            return result

        values = [value(option, node) for option, node in zip(order, call.args, strict=False)]
        return kind, values, {str(kw.arg): value(str(kw.arg), kw.value) for kw in call.keywords}

    def _value(self, node: ast.expr, hint: Any, source: str, refused: RefusedValue) -> Any:
        """The value of an option that takes this type."""
        nests = self.holds(hint)
        if isinstance(node, ast.Name) and (fits(node.id, hint) or not nests):
            return node.id  # a text without its quotes
        if nests and isinstance(node, ast.Name | ast.Call):
            kind, values, options = self._read(node, source, refused)
            return self.build(kind, values, options)
        if fits("", hint) and not isinstance(node, ast.Constant):  # such as cosine(beta=2.0)
            written = ast.get_source_segment(source, node) or ""
            if _TEXT.fullmatch(written):
                return written
        try:
            return ast.literal_eval(node)
        except _UNREADABLE as error:
            raise refused from error

    def _refusal(self, kind: Any, why: object) -> RefusedValue:
        return RefusedValue(f"{self.name_of(kind)} refuses its options: {why}")

    def check_options(self, kind: Any, names: Iterable[str]) -> None:
        """Refuse options that a class does not have. Raises ValueError."""
        types = kind.types_in_text()
        for option in names:
            if option not in types:
                what = f"option of {self.what} {self.name_of(kind)!r}"
                raise RefusedValue(unknown(what, option, types))

    def holds(self, hint: Any) -> bool:
        """Whether a value of this type may be an object of the kind, or may hold one."""
        if isinstance(hint, type) and not get_args(hint):
            return issubclass(hint, self.base)
        return any(map(self.holds, get_args(hint)))


class Named:
    """A base class whose subclasses register themselves: ``class Score(Named, registry=SCORES)``.

    A subclass is registered if its own body has the attribute that marks those, such as ``name``.
    """

    _registry: ClassVar[Registry[Any]]

    def __init_subclass__(
        cls, registry: Registry[Any] | None = None, by_name: bool = True, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if registry is not None:
            cls._registry, registry.base = registry, cls
        elif by_name and cls._registry.mark in vars(cls):  # torch derives classes of its own
            cls._registry.add(cls)

    @classmethod
    def types_in_text(cls) -> dict[str, Any]:
        """The options that a text may give, with their types."""
        return types_of(cls)


def import_files(package: str, path: Iterable[str]) -> None:
    """Import the files of a package by its full name and ``__path__``, but not its subpackages.

    So the classes that they define register themselves.
    """
    for file in iter_modules(path, f"{package}."):
        if not file.ispkg:
            import_module(file.name)
