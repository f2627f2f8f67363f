"""Starting Horovod programs: `horovodrun`, and `run` from inside a program."""

from .launch import run

__all__ = ["run"]
