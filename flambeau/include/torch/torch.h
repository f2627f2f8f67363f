#pragma once
#include <torch/all.h>
#include <torch/nn.h>
#ifdef TORCH_API_INCLUDE_EXTENSION_H
#include <torch/extension.h>
#endif
