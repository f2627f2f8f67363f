// For modules that Python imports: everything, and pybind11, which knows tensors.
#pragma once

#include <torch/all.h>
#include <torch/nn.h>

#include <torch/csrc/utils/pybind.h>
