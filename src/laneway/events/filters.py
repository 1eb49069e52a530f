"""Decides whether a subscription wants an event, by its attributes. Filters are written as for SNS.

    {"country": ["DE", {"prefix": "A"}], "cents": [{"numeric": [">", 100]}]}

All attributes must match; of the conditions on an attribute, one must. Filters are checked here for all brokers.
They are applied here for all but SNS, which applies them itself. A condition that is not understood lets the event
through: a later version may have stored it, and no event may be lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .attributes import attribute_name_problem, is_number
from .event import Attribute, Attributes, FilterPolicy

#: The attributes that a filter may name, and its combinations of conditions: the limits of SNS.
MOST_NAMES = 5
MOST_COMBINATIONS = 150
#: The numbers of a filter reach so far, either way, and have so many digits after the decimal point: those of SNS.
LARGEST_NUMBER = 10**9
MOST_DECIMALS = 5

#: Half of a character: no text that is sent or stored can hold it.
_HALF = re.compile("[\ud800-\udfff]")

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "=": lambda one, other: one == other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def filter_problem(policy: Any) -> str | None:
    """A sentence, if a filter cannot be one."""
    if not isinstance(policy, dict) or not policy:
        return (
            "its filter must be a dict of attributes and lists of conditions, such as {'country': ['DE']}; leave it "
            "out to get every event."
        )
    if len(policy) > MOST_NAMES:
        return f"its filter may name {MOST_NAMES} attributes, not {len(policy)}; filter by fewer."
    combinations = 1
    for name, conditions in policy.items():
        if problem := attribute_name_problem(name):
            return f"its filter cannot be: {problem}"
        if not isinstance(conditions, list) or not conditions:
            return f"its filter must have a list of conditions for {name}, even of one; write {{{name!r}: […]}}."
        for condition in conditions:
            if any(isinstance(each, str) and _HALF.search(each) for each in _leaves(condition)):
                return f"its filter for {name} cannot be: it holds half of a surrogate pair; give valid Unicode."
            if problem := _condition_problem(condition):
                return f"its filter for {name} cannot be: {problem}"
        combinations *= sum(map(_weight, conditions))
    if combinations > MOST_COMBINATIONS:
        return f"its filter has {combinations} combinations of conditions, and {MOST_COMBINATIONS} are the most."
    return None


def passes(policy: FilterPolicy | None, attributes: Attributes) -> bool:
    """Whether a subscription with this filter gets an event with these attributes.

    What is not understood here lets it through: what was stored by a later version must not lose events.
    """
    if policy is None:
        return True
    return all(
        not (isinstance(conditions, list) and conditions)
        or attribute_name_problem(name) is not None  # such as $or
        or any(_fits(condition, attributes.get(name)) for condition in conditions)
        for name, conditions in policy.items()
    )


def _fits(condition: Any, given: Attribute | None) -> bool:
    if _condition_problem(condition):
        return True
    if isinstance(condition, dict) and "exists" in condition:
        return bool((given is not None) == condition["exists"])
    if given is None:
        return False
    values: list[Any] = given if isinstance(given, list) else [given]
    if not isinstance(condition, dict):
        return any(_same(value, condition) for value in values)
    ((word, wanted),) = condition.items()
    return any(_WORDS[word](value, wanted) for value in values)


def _same(value: Any, wanted: Any) -> bool:
    return is_number(value) == is_number(wanted) and bool(value == wanted)


def _is_other(value: Any, wanted: Any) -> bool:
    """One value of a list that is not excluded will do, as with SNS."""
    if isinstance(wanted, dict):
        return not _begins(value, wanted["prefix"])
    return not any(_same(value, each) for each in (wanted if isinstance(wanted, list) else [wanted]))


def _begins(value: Any, wanted: str) -> bool:
    return isinstance(value, str) and value.startswith(wanted)


def _ends(value: Any, wanted: str) -> bool:
    return isinstance(value, str) and value.endswith(wanted)


def _equals_but_for_case(value: Any, wanted: str) -> bool:
    return isinstance(value, str) and value.casefold() == wanted.casefold()


def _is_within(value: Any, wanted: list[Any]) -> bool:
    pairs = zip(wanted[::2], wanted[1::2], strict=True)
    return is_number(value) and all(_COMPARISONS[how](value, number) for how, number in pairs)


_WORDS: dict[str, Callable[[Any, Any], bool]] = {
    "anything-but": _is_other,
    "prefix": _begins,
    "suffix": _ends,
    "equals-ignore-case": _equals_but_for_case,
    "numeric": _is_within,
}


def _weight(condition: Any) -> int:
    excluded = condition.get("anything-but") if isinstance(condition, dict) else None
    return len(excluded) if isinstance(excluded, list) else 1


def _condition_problem(condition: Any) -> str | None:
    if any(is_number(number) and abs(number) > LARGEST_NUMBER for number in _leaves(condition)):
        return "its numbers must be from -10^9 to 10^9, as those of SNS; publish a text, or smaller ones."
    if any(_is_small(number) and round(number, MOST_DECIMALS) != number for number in _leaves(condition)):
        return f"its numbers may have {MOST_DECIMALS} digits after the decimal point, as those of SNS; round them."
    if _is_plain(condition):
        return None
    if not isinstance(condition, dict) or len(condition) != 1:
        return f"a condition is a text, a number, or a dict of one word, not {condition!r}."
    ((word, wanted),) = condition.items()
    if word == "exists":
        right = isinstance(wanted, bool)
    elif word == "numeric":
        right = isinstance(wanted, list) and _is_range(wanted)
    elif word == "anything-but":
        right = (
            _is_plain(wanted)
            or (isinstance(wanted, list) and all(map(_is_plain, wanted)) and len({*map(is_number, wanted)}) == 1)
            or (isinstance(wanted, dict) and [*wanted] == ["prefix"] and _is_text(wanted["prefix"]))
        )
    elif word in _WORDS:
        right = _is_text(wanted)
    else:
        return f"there is no {word!r}; there are exists, {', '.join(_WORDS)}."
    return None if right else f"{word} is given {_GIVEN.get(word, 'a text')}, not {wanted!r}."


_GIVEN = {
    "exists": "True or False",
    "numeric": "a comparison such as ['>=', 5], or a range such as ['>', 0, '<=', 5]",
    "anything-but": "a text, a number, a list of either, or {'prefix': …}",
}


def _leaves(condition: Any) -> list[Any]:
    """The texts and numbers in a condition, however deep."""
    if not isinstance(condition, (dict, list)):
        return [condition]
    within = condition.values() if isinstance(condition, dict) else condition
    return [leaf for each in within for leaf in _leaves(each)]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) or _is_small(value)


def _is_small(value: Any) -> bool:
    """Whether it is a number that SNS takes; NaN is none. An int may be larger than any float."""
    return is_number(value) and abs(value) <= LARGEST_NUMBER


def _is_range(wanted: list[Any]) -> bool:
    words, numbers = wanted[::2], wanted[1::2]
    if not all(map(_is_small, numbers)):
        return False
    if len(wanted) == 2:
        return words[0] in [*_COMPARISONS]
    return len(wanted) == 4 and words[0] in (">", ">=") and words[1] in ("<", "<=") and numbers[0] < numbers[1]
