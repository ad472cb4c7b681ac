/* The sizes of the structs that Python mirrors. */
#include "elmo.h"

long sizeof_layer(void) { return sizeof(struct layer); }
long sizeof_small_batch(void) { return sizeof(struct small_batch); }
long sizeof_work(void) { return sizeof(struct work); }
