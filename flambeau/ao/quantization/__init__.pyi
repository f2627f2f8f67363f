# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.
from enum import Enum
from typing import Any

from . import _correct_bias as _correct_bias
from . import _equalize as _equalize
from . import _learnable_fake_quantize as _learnable_fake_quantize
from . import backend_config as backend_config
from . import fake_quantize as fake_quantize
from . import fixed_ranges as fixed_ranges
from . import fuser_method_mappings as fuser_method_mappings
from . import fx as fx
from . import granularity as granularity
from . import observed_histograms as observed_histograms
from . import observed_ranges as observed_ranges
from . import observer as observer
from . import partial as partial
from . import qconfig as qconfig
from . import qconfig_mapping as qconfig_mapping
from . import quant_type as quant_type
from . import quantization_mappings as quantization_mappings
from . import quantize_fx as quantize_fx
from . import stubs as stubs
from . import utils as utils
from ...ao.quantization.backend_config.backend_config import BackendConfig as BackendConfig
from ...ao.quantization.fx.tracer import ScopeContextManager as ScopeContextManager
from ...ao.quantization.quantize_fx import _convert_to_reference_decomposed_fx as _convert_to_reference_decomposed_fx
from ...ao.quantization.quantize_fx import convert_fx as convert_fx
from ...ao.quantization.quantize_fx import convert_to_reference_fx as convert_to_reference_fx
from ...ao.quantization.quantize_fx import fuse_fx as fuse_fx
from ...ao.quantization.quantize_fx import prepare_fx as prepare_fx
from ...ao.quantization.quantize_fx import prepare_qat_fx as prepare_qat_fx
from ...fx.proxy import Scope as Scope
from .fake_quantize import FakeQuantize as FakeQuantize
from .fake_quantize import FakeQuantizeBase as FakeQuantizeBase
from .fake_quantize import FixedQParamsFakeQuantize as FixedQParamsFakeQuantize
from .fake_quantize import FusedMovingAvgObsFakeQuantize as FusedMovingAvgObsFakeQuantize
from .fake_quantize import default_affine_fixed_qparams_fake_quant as default_affine_fixed_qparams_fake_quant
from .fake_quantize import default_dynamic_fake_quant as default_dynamic_fake_quant
from .fake_quantize import default_embedding_fake_quant as default_embedding_fake_quant
from .fake_quantize import default_embedding_fake_quant_4bit as default_embedding_fake_quant_4bit
from .fake_quantize import default_fake_quant as default_fake_quant
from .fake_quantize import default_fixed_qparams_range_0to1_fake_quant as default_fixed_qparams_range_0to1_fake_quant
from .fake_quantize import default_fixed_qparams_range_neg1to1_fake_quant as default_fixed_qparams_range_neg1to1_fake_quant
from .fake_quantize import default_fused_act_fake_quant as default_fused_act_fake_quant
from .fake_quantize import default_fused_per_channel_wt_fake_quant as default_fused_per_channel_wt_fake_quant
from .fake_quantize import default_fused_wt_fake_quant as default_fused_wt_fake_quant
from .fake_quantize import default_histogram_fake_quant as default_histogram_fake_quant
from .fake_quantize import default_per_channel_weight_fake_quant as default_per_channel_weight_fake_quant
from .fake_quantize import default_symmetric_fixed_qparams_fake_quant as default_symmetric_fixed_qparams_fake_quant
from .fake_quantize import default_weight_fake_quant as default_weight_fake_quant
from .fake_quantize import disable_fake_quant as disable_fake_quant
from .fake_quantize import disable_observer as disable_observer
from .fake_quantize import enable_fake_quant as enable_fake_quant
from .fake_quantize import enable_observer as enable_observer
from .fake_quantize import fused_per_channel_wt_fake_quant_range_neg_127_to_127 as fused_per_channel_wt_fake_quant_range_neg_127_to_127
from .fake_quantize import fused_wt_fake_quant_range_neg_127_to_127 as fused_wt_fake_quant_range_neg_127_to_127
from .fuse_modules import fuse_modules as fuse_modules
from .fuse_modules import fuse_modules_qat as fuse_modules_qat
from .fuser_method_mappings import fuse_conv_bn as fuse_conv_bn
from .fuser_method_mappings import fuse_conv_bn_relu as fuse_conv_bn_relu
from .fuser_method_mappings import fuse_convtranspose_bn as fuse_convtranspose_bn
from .fuser_method_mappings import fuse_linear_bn as fuse_linear_bn
from .fuser_method_mappings import get_fuser_method as get_fuser_method
from .fuser_method_mappings import get_fuser_method_new as get_fuser_method_new
from .observer import AffineQuantizedObserverBase as AffineQuantizedObserverBase
from .observer import FixedQParamsObserver as FixedQParamsObserver
from .observer import Granularity as Granularity
from .observer import HistogramObserver as HistogramObserver
from .observer import MinMaxObserver as MinMaxObserver
from .observer import MovingAverageMinMaxObserver as MovingAverageMinMaxObserver
from .observer import MovingAveragePerChannelMinMaxObserver as MovingAveragePerChannelMinMaxObserver
from .observer import NoopObserver as NoopObserver
from .observer import ObserverBase as ObserverBase
from .observer import PerAxis as PerAxis
from .observer import PerBlock as PerBlock
from .observer import PerChannelMinMaxObserver as PerChannelMinMaxObserver
from .observer import PerGroup as PerGroup
from .observer import PerRow as PerRow
from .observer import PerTensor as PerTensor
from .observer import PerToken as PerToken
from .observer import PlaceholderObserver as PlaceholderObserver
from .observer import RecordingObserver as RecordingObserver
from .observer import ReuseInputObserver as ReuseInputObserver
from .observer import UniformQuantizationObserverBase as UniformQuantizationObserverBase
from .observer import default_affine_fixed_qparams_observer as default_affine_fixed_qparams_observer
from .observer import default_debug_observer as default_debug_observer
from .observer import default_dynamic_quant_observer as default_dynamic_quant_observer
from .observer import default_fixed_qparams_range_0to1_observer as default_fixed_qparams_range_0to1_observer
from .observer import default_fixed_qparams_range_neg1to1_observer as default_fixed_qparams_range_neg1to1_observer
from .observer import default_float_qparams_observer as default_float_qparams_observer
from .observer import default_float_qparams_observer_4bit as default_float_qparams_observer_4bit
from .observer import default_histogram_observer as default_histogram_observer
from .observer import default_observer as default_observer
from .observer import default_per_channel_weight_observer as default_per_channel_weight_observer
from .observer import default_placeholder_observer as default_placeholder_observer
from .observer import default_reuse_input_observer as default_reuse_input_observer
from .observer import default_symmetric_fixed_qparams_observer as default_symmetric_fixed_qparams_observer
from .observer import default_weight_observer as default_weight_observer
from .observer import get_block_size as get_block_size
from .observer import get_observer_state_dict as get_observer_state_dict
from .observer import load_observer_state_dict as load_observer_state_dict
from .observer import per_channel_weight_observer_range_neg_127_to_127 as per_channel_weight_observer_range_neg_127_to_127
from .observer import weight_observer_range_neg_127_to_127 as weight_observer_range_neg_127_to_127
from .qconfig import QConfig as QConfig
from .qconfig import QConfigAny as QConfigAny
from .qconfig import QConfigDynamic as QConfigDynamic
from .qconfig import default_activation_only_qconfig as default_activation_only_qconfig
from .qconfig import default_debug_qconfig as default_debug_qconfig
from .qconfig import default_dynamic_qat_qconfig as default_dynamic_qat_qconfig
from .qconfig import default_dynamic_qconfig as default_dynamic_qconfig
from .qconfig import default_embedding_qat_qconfig as default_embedding_qat_qconfig
from .qconfig import default_embedding_qat_qconfig_4bit as default_embedding_qat_qconfig_4bit
from .qconfig import default_per_channel_qconfig as default_per_channel_qconfig
from .qconfig import default_per_channel_symmetric_qnnpack_qat_qconfig as default_per_channel_symmetric_qnnpack_qat_qconfig
from .qconfig import default_per_channel_symmetric_qnnpack_qconfig as default_per_channel_symmetric_qnnpack_qconfig
from .qconfig import default_qat_qconfig as default_qat_qconfig
from .qconfig import default_qat_qconfig_v2 as default_qat_qconfig_v2
from .qconfig import default_qconfig as default_qconfig
from .qconfig import default_quint8_weight_qconfig as default_quint8_weight_qconfig
from .qconfig import default_reuse_input_qconfig as default_reuse_input_qconfig
from .qconfig import default_symmetric_qnnpack_qat_qconfig as default_symmetric_qnnpack_qat_qconfig
from .qconfig import default_symmetric_qnnpack_qconfig as default_symmetric_qnnpack_qconfig
from .qconfig import default_weight_only_qconfig as default_weight_only_qconfig
from .qconfig import float16_dynamic_qconfig as float16_dynamic_qconfig
from .qconfig import float16_static_qconfig as float16_static_qconfig
from .qconfig import float_qparams_weight_only_qconfig as float_qparams_weight_only_qconfig
from .qconfig import float_qparams_weight_only_qconfig_4bit as float_qparams_weight_only_qconfig_4bit
from .qconfig import get_default_qat_qconfig as get_default_qat_qconfig
from .qconfig import get_default_qat_qconfig_dict as get_default_qat_qconfig_dict
from .qconfig import get_default_qconfig as get_default_qconfig
from .qconfig import get_default_qconfig_dict as get_default_qconfig_dict
from .qconfig import per_channel_dynamic_qconfig as per_channel_dynamic_qconfig
from .qconfig import qconfig_equals as qconfig_equals
from .qconfig_mapping import QConfigMapping as QConfigMapping
from .qconfig_mapping import get_default_qat_qconfig_mapping as get_default_qat_qconfig_mapping
from .qconfig_mapping import get_default_qconfig_mapping as get_default_qconfig_mapping
from .quant_type import QuantType as QuantType
from .quantization_mappings import DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS as DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS
from .quantization_mappings import DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS as DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS
from .quantization_mappings import DEFAULT_MODULE_TO_ACT_POST_PROCESS as DEFAULT_MODULE_TO_ACT_POST_PROCESS
from .quantization_mappings import DEFAULT_QAT_MODULE_MAPPINGS as DEFAULT_QAT_MODULE_MAPPINGS
from .quantization_mappings import DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS as DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS
from .quantization_mappings import DEFAULT_STATIC_QUANT_MODULE_MAPPINGS as DEFAULT_STATIC_QUANT_MODULE_MAPPINGS
from .quantization_mappings import get_default_compare_output_module_list as get_default_compare_output_module_list
from .quantization_mappings import get_default_dynamic_quant_module_mappings as get_default_dynamic_quant_module_mappings
from .quantization_mappings import get_default_float_to_quantized_operator_mappings as get_default_float_to_quantized_operator_mappings
from .quantization_mappings import get_default_qat_module_mappings as get_default_qat_module_mappings
from .quantization_mappings import get_default_qconfig_propagation_list as get_default_qconfig_propagation_list
from .quantization_mappings import get_default_static_quant_module_mappings as get_default_static_quant_module_mappings
from .quantization_mappings import get_default_static_quant_reference_module_mappings as get_default_static_quant_reference_module_mappings
from .quantization_mappings import get_dynamic_quant_module_class as get_dynamic_quant_module_class
from .quantization_mappings import get_embedding_qat_module_mappings as get_embedding_qat_module_mappings
from .quantization_mappings import get_embedding_static_quant_module_mappings as get_embedding_static_quant_module_mappings
from .quantization_mappings import get_quantized_operator as get_quantized_operator
from .quantization_mappings import get_static_quant_module_class as get_static_quant_module_class
from .quantization_mappings import no_observer_set as no_observer_set
from .quantize import add_quant_dequant as add_quant_dequant
from .quantize import convert as convert
from .quantize import get_default_custom_config_dict as get_default_custom_config_dict
from .quantize import prepare as prepare
from .quantize import prepare_qat as prepare_qat
from .quantize import propagate_qconfig_ as propagate_qconfig_
from .quantize import quantize as quantize
from .quantize import quantize_dynamic as quantize_dynamic
from .quantize import quantize_qat as quantize_qat
from .quantize import swap_module as swap_module
from .stubs import DeQuantStub as DeQuantStub
from .stubs import QuantStub as QuantStub
from .stubs import QuantWrapper as QuantWrapper

class MappingType(Enum):
    SYMMETRIC = ...
    SYMMETRIC_NO_CLIPPING_ERR = ...
    ASYMMETRIC = ...
ObserverOrFakeQuantize = ObserverBase | FakeQuantizeBase
class TorchAODType(Enum):
    INT1 = ...
    INT2 = ...
    INT3 = ...
    INT4 = ...
    INT5 = ...
    INT6 = ...
    INT7 = ...
class ZeroPointDomain(Enum):
    INT = ...
    FLOAT = ...
    NONE = ...
def default_eval_fn(model: Any, calib_data: Any) -> None: ...
