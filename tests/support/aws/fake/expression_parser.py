"""Parses DynamoDB expressions into trees; `expressions` evaluates them on an item.

A tree is a tuple whose first element is its type:
    ("path", (name, index, …))          ("value", ":v")
    ("and" | "or", left, right)         ("not", tree)
    ("compare", operator, left, right)  ("between", tree, low, high)     ("in", tree, [tree, …])
    ("call", function, [tree, …])       ("+" | "-", left, right)
Names are those of the item: the parser replaces `#n`. It rejects a reserved word that is written out, as AWS does.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.aws.fake.values import Item, invalid

Tree = tuple[Any, ...]

_TOKEN = re.compile(r"\s*(?:(?P<word>[#:]?[A-Za-z_0-9]+)|(?P<sign><>|<=|>=|[=<>(),.\[\]+-])|(?P<end>$)|(?P<wrong>.))")
_COMPARISONS = {"=", "<>", "<", "<=", ">", ">="}
CONDITIONS = {"attribute_exists": 1, "attribute_not_exists": 1, "attribute_type": 2, "begins_with": 2, "contains": 2}
_FUNCTIONS = {**CONDITIONS, "size": 1, "if_not_exists": 2, "list_append": 2}
_CLAUSES = {"SET", "REMOVE", "ADD", "DELETE"}


@lru_cache
def reserved() -> frozenset[str]:
    """AWS's list of words that cannot be written out; moto carries it."""
    spec = find_spec("moto")
    assert spec is not None
    assert spec.origin is not None
    words = Path(spec.origin).parent / "dynamodb" / "parsing" / "reserved_keywords.txt"
    return frozenset(word.strip().upper() for word in words.read_text().split())


class Names:
    """What `#n` and `:v` stand for in one request, and which of them were used."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.names: dict[str, str] = params.get("ExpressionAttributeNames") or {}
        self.values: Item = params.get("ExpressionAttributeValues") or {}
        for key, sign in (("ExpressionAttributeNames", "#"), ("ExpressionAttributeValues", ":")):
            if key in params:
                if not params[key]:
                    raise invalid(f"{key} must not be empty")
                if not any(name.endswith("Expression") for name in params):
                    raise invalid(f"{key} can only be specified when using expressions")
                for name in params[key]:
                    if not re.fullmatch(rf"{sign}[A-Za-z0-9_]+", name):
                        raise invalid(f'{key} contains invalid key: Syntax error; key: "{name}"')
        self._used: set[str] = set()

    def name(self, word: str, kind: str) -> str:
        if word.startswith("#"):
            if word not in self.names:
                message = "An expression attribute name used in the document path is not defined"
                raise invalid(f"Invalid {kind}: {message}; attribute name: {word}")
            self._used.add(word)
            return self.names[word]
        if word.upper() in reserved():
            message = "Attribute name is a reserved keyword; reserved keyword"
            raise invalid(f"Invalid {kind}: {message}: {word}")
        return word

    def value(self, word: str, kind: str) -> str:
        if word not in self.values:
            message = "An expression attribute value used in expression is not defined"
            raise invalid(f"Invalid {kind}: {message}; attribute value: {word}")
        self._used.add(word)
        return word

    def check_used(self) -> None:
        """Refuse what was given and not used."""
        for what, given in (("Names", self.names), ("Values", self.values)):
            if unused := sorted(given.keys() - self._used):
                listed = ", ".join(unused)
                message = f"provided in ExpressionAttribute{what} unused in expressions: keys: {{{listed}}}"
                raise invalid(f"Value {message}")


class Parser:
    """Reads one expression. `kind` is the parameter that it was given as, for errors."""

    def __init__(self, text: str, kind: str, names: Names) -> None:
        if not text.strip():
            raise invalid(f"Invalid {kind}: The expression can not be empty;")
        self._kind, self._names = kind, names
        self._tokens: list[str] = []
        for found in _TOKEN.finditer(text):
            if found["wrong"]:
                raise self._wrong(found["wrong"])
            if found["word"] or found["sign"]:
                self._tokens.append(found["word"] or found["sign"])
        self._tokens.append("")
        self._at = 0

    # -- whole expressions -----------------------------------------------------------------------------

    def condition(self) -> Tree:
        tree = self._or()
        self._end()
        return tree

    def paths(self) -> list[Tree]:
        """A projection."""
        found = [self._path()]
        while self._takes(","):
            found.append(self._path())
        self._end()
        return found

    def update(self) -> dict[str, list[tuple[Tree, Tree | None]]]:
        """What each clause does: pairs of a path and a tree."""
        clauses: dict[str, list[tuple[Tree, Tree | None]]] = {}
        while (word := self._next.upper()) in _CLAUSES:
            self._at += 1
            if word in clauses:
                raise invalid(
                    f'Invalid {self._kind}: The "{word}" section can only be used once in an update expression;'
                )
            clauses[word] = [self._action(word)]
            while self._takes(","):
                clauses[word].append(self._action(word))
        self._end()
        return clauses

    def _action(self, clause: str) -> tuple[Tree, Tree | None]:
        path = self._path()
        if clause == "REMOVE":
            return path, None
        if clause == "SET":
            self._needs("=")
            return path, self._sum()
        return path, self._operand()

    # -- conditions ------------------------------------------------------------------------------------

    def _or(self) -> Tree:
        tree = self._and()
        while self._takes_word("OR"):
            tree = ("or", tree, self._and())
        return tree

    def _and(self) -> Tree:
        tree = self._not()
        while self._takes_word("AND"):
            tree = ("and", tree, self._not())
        return tree

    def _not(self) -> Tree:
        if self._takes_word("NOT"):
            return ("not", self._not())
        if self._takes("("):
            tree = self._or()
            self._needs(")")
            return tree
        return self._comparison()

    def _comparison(self) -> Tree:
        left = self._operand()
        if self._next in _COMPARISONS:
            operator = self._take()
            return ("compare", operator, left, self._operand())
        if self._takes_word("BETWEEN"):
            low = self._operand()
            if not self._takes_word("AND"):
                raise self._wrong(self._next)
            return ("between", left, low, self._operand())
        if self._takes_word("IN"):
            self._needs("(")
            choices = [self._operand()]
            while self._takes(","):
                choices.append(self._operand())
            self._needs(")")
            return ("in", left, choices)
        if left[0] == "call" and left[1] in CONDITIONS:
            return left
        raise self._wrong(self._next)

    # -- operands --------------------------------------------------------------------------------------

    def _sum(self) -> Tree:
        left = self._operand()
        if self._next in ("+", "-"):
            return (self._take(), left, self._operand())
        return left

    def _operand(self) -> Tree:
        if self._takes("("):
            tree = self._sum()
            self._needs(")")
            return tree
        if self._next.startswith(":"):
            return ("value", self._names.value(self._take(), self._kind))
        if self._tokens[self._at + 1 : self._at + 2] == ["("]:
            return self._call()
        return self._path()

    def _call(self) -> Tree:
        function = self._take()
        if function not in _FUNCTIONS:
            raise invalid(f"Invalid {self._kind}: Invalid function name; function: {function}")
        self._needs("(")
        arguments = [self._operand()]
        while self._takes(","):
            arguments.append(self._operand())
        self._needs(")")
        if len(arguments) != _FUNCTIONS[function]:
            message = "Incorrect number of operands for operator or function"
            raise invalid(f"Invalid {self._kind}: {message}; operator or function: {function}")
        return ("call", function, arguments)

    def _path(self) -> Tree:
        steps: list[str | int] = [self._name()]
        while self._next in (".", "["):
            if self._take() == ".":
                steps.append(self._name())
            else:
                steps.append(int(self._take()))
                self._needs("]")
        return ("path", tuple(steps))

    def _name(self) -> str:
        word = self._take()
        if not re.fullmatch(r"#[A-Za-z0-9_]+|[A-Za-z][A-Za-z0-9_]*", word):
            raise self._wrong(word)
        return self._names.name(word, self._kind)

    # -- tokens ----------------------------------------------------------------------------------------

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        token = self._next
        if not token:
            raise self._wrong("<EOF>")
        self._at += 1
        return token

    def _takes(self, sign: str) -> bool:
        if self._next != sign:
            return False
        self._at += 1
        return True

    def _takes_word(self, word: str) -> bool:
        if self._next.upper() != word:
            return False
        self._at += 1
        return True

    def _needs(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._wrong(self._next)

    def _end(self) -> None:
        if self._next:
            raise self._wrong(self._next)

    def _wrong(self, token: str) -> Exception:
        return invalid(f'Invalid {self._kind}: Syntax error; token: "{token or "<EOF>"}"')
