"""Figures that process groups start with."""

from .options import default_pg_timeout
from .rendezvous import default_pg_nccl_timeout

__all__ = ["default_pg_nccl_timeout", "default_pg_timeout"]
