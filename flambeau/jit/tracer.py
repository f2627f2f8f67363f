from .tracing_state import active
