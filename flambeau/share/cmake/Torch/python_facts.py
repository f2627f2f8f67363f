"""Facts about this Python for CMake: its headers, its library, and where pybind11's headers are."""

import importlib.util
import os
import sysconfig

library = os.path.join(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("LDLIBRARY") or "")
spec = importlib.util.find_spec("pybind11")
roots = spec.submodule_search_locations or [] if spec is not None else []
pybind11 = next((p for p in (os.path.join(r, "include") for r in roots) if os.path.isdir(p)), "")
print(";".join([sysconfig.get_paths()["include"], library, pybind11]))
