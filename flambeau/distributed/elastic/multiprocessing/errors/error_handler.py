"""Writing of a process's error to the file that its agent reads."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import time
import traceback
from typing import Any

__all__ = ["ErrorHandler"]

logger = logging.getLogger(__name__)


class ErrorHandler:
    """Writes the error of this process to the file that TORCHELASTIC_ERROR_FILE names, atomically."""

    def initialize(self) -> None:
        """Enable printing of the Python stack on crashes, if possible."""
        try:
            faulthandler.enable(all_threads=True)
        except (RuntimeError, OSError, ValueError) as problem:  # standard error is no file, or closed
            logger.warning("the stack of a crash will not be shown: %s", problem)

    def record_exception(self, error: BaseException) -> None:
        details = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
        message = f"{type(error).__name__}: {error}"
        self._write({"message": {"message": message, "errorCode": getattr(error, "code", 1), "extraInfo": details}})

    def override_error_code_in_rootcause_data(
        self, rootcause_error_file: str, rootcause_error: dict[str, Any], error_code: int = 0
    ) -> None:
        """Store the exit code of the process that failed in its error data."""
        if isinstance(rootcause_error.get("message"), dict):
            rootcause_error["message"]["errorCode"] = error_code

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Copy a child's error to the error file of this process, for its parent."""
        with open(rootcause_error_file, encoding="utf-8") as file:
            found = json.load(file)
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, found, error_code)
        if not os.environ.get("TORCHELASTIC_ERROR_FILE"):
            logger.error("the root cause of the failure:\n%s", json.dumps(found, indent=2))
        self._write(found)

    def _write(self, data: dict) -> None:
        path = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if not path:
            return
        draft = f"{path}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(data, file)
        os.replace(draft, path)
