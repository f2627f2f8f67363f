"""`torch.package`: models with the Python code that they need, in one file of PyTorch's format.

Making a `PackageImporter` and listing or reading its texts runs nothing. `import_module` and `load_pickle` run code of the file, as
their names say: call them only for files from people whom you trust, as with any program of theirs.

>>> with PackageExporter("shop.pt") as exporter:                             # doctest: +SKIP
...     exporter.intern("shop.**")
...     exporter.save_pickle("model", "model.pkl", model)
>>> PackageImporter("shop.pt").load_pickle("model", "model.pkl")             # doctest: +SKIP
"""

from .analyze import is_from_package
from .file_structure_representation import Directory
from .glob_group import GlobGroup
from .importer import Importer, ObjMismatchError, ObjNotFoundError, OrderedImporter, sys_importer
from .package_exporter import EmptyMatchError, PackageExporter, PackagingError
from .package_importer import PackageImporter

__all__ = [
    "Directory", "EmptyMatchError", "GlobGroup", "Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter",
    "PackageExporter", "PackageImporter", "PackagingError", "is_from_package", "sys_importer",
]  # fmt: skip
