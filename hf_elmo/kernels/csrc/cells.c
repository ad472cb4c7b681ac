/* One step of the LSTM's cell and its gradient, in one pass over the gates instead of a dozen passes. */
#include "elmo.h"
#include "threads.h"

#define TYPE f32
#include "cells_of_type.h"
#undef TYPE
#define TYPE bf16
#include "cells_of_type.h"
