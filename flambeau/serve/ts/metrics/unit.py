"""The names of units."""


class Units:
    """Short names of units, and what they are called in logs."""

    def __init__(self) -> None:
        self.units = {
            "ms": "Milliseconds", "s": "Seconds", "percent": "Percent", "count": "Count", "MB": "Megabytes",
            "GB": "Gigabytes", "kB": "Kilobytes", "B": "Bytes", "": "unit", None: "unit",
        }  # fmt: skip
