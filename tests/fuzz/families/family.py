"""What a family is: a function that writes the lines of a random program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..draw import Draw

Program = Callable[[Draw], list[str]]


@dataclass(frozen=True)
class Family:
    """Lines of a program by a draw. Inputs have names of one letter. `exact`: last bits must agree, too."""

    program: Program
    exact: bool = False


FAMILIES: dict[str, Family] = {}


def family(function: Program) -> Program:
    """Declare a family under the name of its function."""
    FAMILIES[function.__name__] = Family(function)
    return function


def exact_family(function: Program) -> Program:
    """Declare a family whose results agree bit by bit."""
    FAMILIES[function.__name__] = Family(function, exact=True)
    return function


def with_grads(draw: Draw, lines: list[str], inputs: str, p: float = 0.6) -> list[str]:
    """The lines, and sometimes the gradients of `result` by the inputs (names with commas), at times those of the gradients."""
    known = [
        name
        for name in inputs.split(", ")
        if any(line.startswith(f"{name} =") and "requires_grad" in line for line in lines)
    ]
    if not known or not draw.chance(p):
        return lines
    inputs = ", ".join(known)
    if draw.chance(0.25):
        return [
            *lines,
            f"slopes = grads(result, {inputs}, create_graph=True)",
            f"curves = grads(slopes, {draw.among(*known)})",
        ]
    return [*lines, f"slopes = grads(result, {inputs})"]
