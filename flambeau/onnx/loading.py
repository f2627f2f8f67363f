from typing import Any
class OnnxModule: pass
def load(f: Any) -> Any: raise NotImplementedError
