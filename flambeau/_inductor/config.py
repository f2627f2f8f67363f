"""Switches of PyTorch's code generator. Programs may set and read them; nothing here asks for them."""

coordinate_descent_tuning = False
epilogue_fusion = True
fx_graph_cache = True
max_autotune = False
