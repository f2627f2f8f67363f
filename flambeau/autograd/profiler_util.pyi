# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.

from ..profiler.events import DeviceType as DeviceType
from ..profiler.events import EventList as EventList
from ..profiler.events import EventMetadata as EventMetadata
from ..profiler.events import FormattedTimesMixin as FormattedTimesMixin
from ..profiler.events import FunctionEvent as FunctionEvent
from ..profiler.events import FunctionEventAvg as FunctionEventAvg
from ..profiler.events import Interval as Interval
from ..profiler.events import Kernel as Kernel
from ..profiler.events import MEMORY_EVENT_NAME as MEMORY_EVENT_NAME
from ..profiler.events import MemRecordsAcc as MemRecordsAcc
from ..profiler.events import OUT_OF_MEMORY_EVENT_NAME as OUT_OF_MEMORY_EVENT_NAME
from ..profiler.events import StringTable as StringTable
from ..profiler.events import Table as Table
from ..profiler.events import build_metadata as build_metadata
from ..profiler.events import of_device as of_device
