/* One step of the LSTM's cell and its gradient: one pass over the gates in place of a dozen. */
#include "elmo.h"
#include "threads.h"

#define TYPE f32
#include "cells_of_type.h"
#undef TYPE
#define TYPE bf16
#include "cells_of_type.h"
#undef TYPE
