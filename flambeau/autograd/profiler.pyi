# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.

from ..profiler.session import DeviceClock as DeviceClock
from ..profiler.session import DeviceType as DeviceType
from ..profiler.session import EnforceUnique as EnforceUnique
from ..profiler.session import EventList as EventList
from ..profiler.session import ExperimentalConfig as ExperimentalConfig
from ..profiler.session import FunctionEvent as FunctionEvent
from ..profiler.session import FunctionEventAvg as FunctionEventAvg
from ..profiler.session import Interval as Interval
from ..profiler.session import Kernel as Kernel
from ..profiler.session import KinetoStepTracker as KinetoStepTracker
from ..profiler.session import MissingLibrary as MissingLibrary
from ..profiler.session import ProfilerActivity as ProfilerActivity
from ..profiler.session import ProfilerConfig as ProfilerConfig
from ..profiler.session import ProfilerState as ProfilerState
from ..profiler.session import PythonCalls as PythonCalls
from ..profiler.session import Recorder as Recorder
from ..profiler.session import Results as Results
from ..profiler.session import above as above
from ..profiler.session import config_of as config_of
from ..profiler.session import emit_itt as emit_itt
from ..profiler.session import emit_nvtx as emit_nvtx
from ..profiler.session import kineto_available as kineto_available
from ..profiler.session import profile as profile
from ..profiler.session import record_function as record_function
from ..profiler.session import supported_activities as supported_activities
