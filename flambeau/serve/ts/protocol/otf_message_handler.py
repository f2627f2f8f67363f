"""The older home of `send_intermediate_predict_response`."""

from ..handler_utils.utils import send_intermediate_predict_response

__all__ = ["send_intermediate_predict_response"]
