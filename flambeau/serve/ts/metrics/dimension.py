"""A label of a metric."""

from __future__ import annotations


class Dimension:
    """A name and a value, such as ModelName: resnet."""

    def __init__(self, name: str, value: str):
        self.name = name
        self.value = value

    def __str__(self) -> str:
        return f"{self.name}:{self.value}"

    def to_dict(self) -> dict[str, str]:
        return {"Name": self.name, "Value": self.value}
