/* The sizes of the structs and of the blocks that Python mirrors. */
#include "elmo.h"

long sizeof_layer(void) { return sizeof(struct layer); }
long sizeof_small_batch(void) { return sizeof(struct small_batch); }
long sizeof_work(void) { return sizeof(struct work); }

long constant_lanes(void) { return LANES; }
long constant_fused_rows(void) { return FUSED_ROWS; }
long constant_fused_columns(void) { return FUSED_COLUMNS; }
long constant_fused_depth(void) { return FUSED_DEPTH; }
long constant_product_columns(void) { return PRODUCT_COLUMNS; }
