"""Evaluates DynamoDB expressions on an item: tests conditions, applies updates and projections."""

from __future__ import annotations

import copy
from collections.abc import Callable
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Any

from tests.support.aws.fake.expression_parser import Names, Parser, Tree
from tests.support.aws.fake.values import Item, Value, equal, invalid, normal, number, sortable, spelled

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_SORTED = ("S", "N", "B")
Path = tuple[str | int, ...]


def condition(params: dict[str, Any], kind: str, names: Names) -> Callable[[Item], bool] | None:
    """The condition that was given as parameter `kind`, if one was."""
    if kind not in params:
        return None
    tree = Parser(params[kind], kind, names).condition()
    _check_operands(tree, kind, names)
    return lambda item: _holds(tree, item, names.values)


def update(params: dict[str, Any], names: Names, keys: set[str]) -> Callable[[Item], tuple[Item, set[str]]]:
    """What an UpdateExpression does: from an item to a changed copy, and the attributes that it touched."""
    clauses = Parser(params["UpdateExpression"], "UpdateExpression", names).update()
    paths: list[Path] = [path[1] for actions in clauses.values() for path, _ in actions]
    for number_, path in enumerate(paths):
        if path[0] in keys:
            message = f"Cannot update attribute {path[0]}. This attribute is part of the key"
            raise invalid(f"One or more parameter values were invalid: {message}")
        for other in paths[:number_]:
            if path[: len(other)] == other[: len(path)]:
                raise invalid("Invalid UpdateExpression: Two document paths overlap with each other;")

    def apply(item: Item) -> tuple[Item, set[str]]:
        new = copy.deepcopy(item)
        for path, tree in clauses.get("SET", []):
            assert tree is not None
            _put(new, path[1], normal(_computed(tree, item, names.values)))
        for path, _ in clauses.get("REMOVE", []):
            _remove(new, path[1])
        for path, tree in clauses.get("ADD", []):
            assert tree is not None
            _add(new, path[1], _computed(tree, item, names.values))
        for path, tree in clauses.get("DELETE", []):
            assert tree is not None
            _subtract(new, path[1], _computed(tree, item, names.values))
        return new, {str(path[0]) for path in paths}

    return apply


def project(items: list[Item], params: dict[str, Any], names: Names) -> list[Item]:
    """Only what a ProjectionExpression names, if there is one."""
    if "ProjectionExpression" not in params:
        return items
    paths = Parser(params["ProjectionExpression"], "ProjectionExpression", names).paths()
    if any(len(path[1]) > 1 for path in paths):
        raise invalid("This fake projects whole attributes only.")
    wanted = {path[1][0] for path in paths}
    return [{name: value for name, value in item.items() if name in wanted} for item in items]


def key_condition(params: dict[str, Any], names: Names) -> dict[str, tuple[str, list[Value]]]:
    """A KeyConditionExpression: of each attribute what it must be, as an operator and its operands."""
    kind = "KeyConditionExpression"
    found: dict[str, tuple[str, list[Value]]] = {}

    def read(tree: Tree) -> None:
        match tree:
            case ("and", left, right):
                read(left)
                read(right)
                return
            case ("compare", operator, ("path", (str(name),)), ("value", value)) if operator != "<>":
                says = operator, [names.values[value]]
            case ("between", ("path", (str(name),)), ("value", low), ("value", high)):
                says = "between", [names.values[low], names.values[high]]
            case ("call", "begins_with", [("path", (str(name),)), ("value", value)]):
                says = "begins_with", [names.values[value]]
            case _:
                raise invalid(f"Invalid {kind}: Invalid operator or operand used in key condition")
        if name in found:
            raise invalid("KeyConditionExpressions must only contain one condition per key")
        found[name] = says

    read(Parser(params[kind], kind, names).condition())
    return found


# -- conditions ----------------------------------------------------------------------------------------


def _holds(tree: Tree, item: Item, values: Item) -> bool:
    match tree:
        case ("and", left, right):
            return _holds(left, item, values) and _holds(right, item, values)
        case ("or", left, right):
            return _holds(left, item, values) or _holds(right, item, values)
        case ("not", inner):
            return not _holds(inner, item, values)
        case ("compare", operator, left, right):
            return _compares(operator, _found(left, item, values), _found(right, item, values))
        case ("between", inner, low, high):
            value = _found(inner, item, values)
            return _compares(">=", value, _found(low, item, values)) and _compares(
                "<=", value, _found(high, item, values)
            )
        case ("in", inner, choices):
            value = _found(inner, item, values)
            return any(_compares("=", value, _found(choice, item, values)) for choice in choices)
        case ("call", function, arguments):
            return _calls(function, [_found(argument, item, values) for argument in arguments])
    raise AssertionError(tree)


def _compares(operator: str, left: Value | None, right: Value | None) -> bool:
    if operator in ("=", "<>"):
        same = left is not None and right is not None and equal(left, right)
        return same == (operator == "=")
    if left is None or right is None or left.keys() != right.keys() or next(iter(left)) not in _SORTED:
        return False
    return _ORDERS[operator](sortable(left), sortable(right))


def _calls(function: str, arguments: list[Value | None]) -> bool:
    first, second = arguments[0], arguments[1] if len(arguments) > 1 else None
    if function == "attribute_exists":
        return first is not None
    if function == "attribute_not_exists":
        return first is None
    if first is None or second is None:
        return False
    (kind, content), (kind2, content2) = next(iter(first.items())), next(iter(second.items()))
    match function:
        case "attribute_type":
            return bool(kind == content2)
        case "begins_with":
            return kind == kind2 and kind in ("S", "B") and bool(content.startswith(content2))
        case "contains":
            if kind == "L":
                return any(equal(each, second) for each in content)
            return (kind == kind2 == "S" or (kind, kind2) in (("SS", "S"), ("NS", "N"))) and content2 in content
    raise invalid(f"{function} is no condition.")


def _check_operands(tree: Tree, kind: str, names: Names) -> None:
    """Refuse an order between what has none, where that can be seen without an item."""
    match tree:
        case ("and" | "or", left, right):
            _check_operands(left, kind, names)
            _check_operands(right, kind, names)
        case ("not", inner):
            _check_operands(inner, kind, names)
        case ("compare", operator, left, right) if operator in _ORDERS:
            for operand in (left, right):
                if operand[0] == "value" and (type_ := next(iter(names.values[operand[1]]))) not in _SORTED:
                    message = f"Incorrect operand type for operator or function; operator: {operator}"
                    raise invalid(f"Invalid {kind}: {message}, operand type: {type_}")


# -- values --------------------------------------------------------------------------------------------


def _found(tree: Tree, item: Item, values: Item) -> Value | None:
    """The value of an operand, None if the item has no such attribute."""
    match tree:
        case ("value", name):
            return values[name]
        case ("path", path):
            return _get(item, path)
        case ("call", "size", [inner]):
            value = _found(inner, item, values)
            if value is None:
                return None
            content = next(iter(value.values()))
            return {"N": str(len(content.encode()) if isinstance(content, str) else len(content))}
    raise invalid("A condition cannot compute.")


def _computed(tree: Tree, item: Item, values: Item) -> Value:
    """A value to be stored, which must be there."""
    match tree:
        case ("+" | "-" as sign, left, right):
            one, other = _number(_computed(left, item, values)), _number(_computed(right, item, values))
            return {"N": spelled(one + other if sign == "+" else one - other)}
        case ("call", "if_not_exists", [("path", path), otherwise]):
            return _get(item, path) or _computed(otherwise, item, values)
        case ("call", "list_append", [one, other]):
            return {"L": [*_computed(one, item, values)["L"], *_computed(other, item, values)["L"]]}
        case ("call", function, _):
            raise invalid(f"Invalid UpdateExpression: The function is not allowed in an update expression; {function}")
    value = _found(tree, item, values)
    if value is None:
        raise invalid("The provided expression refers to an attribute that does not exist in the item")
    return value


def _number(value: Value) -> Decimal:
    if "N" not in value:
        raise invalid("An operand in the update expression has an incorrect data type")
    return number(value["N"])


# -- paths ---------------------------------------------------------------------------------------------


def _get(item: Item, path: Path) -> Value | None:
    value: Value | None = item.get(str(path[0]))
    for step in path[1:]:
        if value is None:
            return None
        if isinstance(step, int):
            inner = value.get("L", [])
            value = inner[step] if step < len(inner) else None
        else:
            value = value.get("M", {}).get(step)
    return value


def _holder(item: Item, path: Path) -> Any:
    """The map or list in which the last step of a path is."""
    if len(path) == 1:
        return item
    value = _get(item, path[:-1]) or {}
    inner = value.get("L" if isinstance(path[-1], int) else "M")
    if inner is None:
        raise invalid("The document path provided in the update expression is invalid for update")
    return inner


def _put(item: Item, path: Path, value: Value) -> None:
    holder, last = _holder(item, path), path[-1]
    if isinstance(last, int) and last >= len(holder):
        holder.append(value)
    else:
        holder[last] = value


def _remove(item: Item, path: Path) -> None:
    if _get(item, path) is not None:
        del _holder(item, path)[path[-1]]


def _add(item: Item, path: Path, value: Value) -> None:
    kind, content = next(iter(value.items()))
    old = _get(item, path)
    if kind not in ("N", "SS", "NS", "BS"):
        raise invalid("Invalid UpdateExpression: Incorrect operand type for operator or function; operator: ADD")
    if old is not None and kind not in old:
        raise invalid("An operand in the update expression has an incorrect data type")
    if kind == "N":
        _put(item, path, {"N": spelled(number(content) + number(old["N"] if old else "0"))})
    else:
        _put(item, path, normal({kind: list(dict.fromkeys([*(old[kind] if old else []), *content]))}))


def _subtract(item: Item, path: Path, value: Value) -> None:
    kind, content = next(iter(value.items()))
    old = _get(item, path)
    if kind not in ("SS", "NS", "BS") or (old is not None and kind not in old):
        raise invalid("An operand in the update expression has an incorrect data type")
    if old is not None:
        if left := [each for each in old[kind] if each not in content]:
            _put(item, path, {kind: left})
        else:
            _remove(item, path)
