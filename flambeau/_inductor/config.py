"""Switches of PyTorch's code generator. Programs may set and read them; nothing here asks for them."""

from types import SimpleNamespace

coordinate_descent_check_all_directions = False
coordinate_descent_tuning = False
epilogue_fusion = True
force_fuse_int_mm_with_mul = False
fx_graph_cache = True
max_autotune = False
triton = SimpleNamespace(unique_kernel_names=True)
