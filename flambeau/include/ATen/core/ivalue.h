#pragma once
#include <torch/ivalue.h>
