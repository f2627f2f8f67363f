#pragma once
#include <c10/types.h>
