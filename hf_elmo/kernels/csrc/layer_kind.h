/* One kind of product: the layout of operands, [row / ROWS][column / DEPTH][ROWS][DEPTH], the multiplication with the
 * cells in between, and the loops over steps. layer.c defines the macros, which this file undefines at its end.
 */

/* Where LANES numbers of a row stand in the operands' layout. */
INLINE TYPE *JOIN(place, KIND)(TYPE *tiles, i64 depth, i64 row, i64 column) {
  return tiles + ((row / ROWS * depth + column / DEPTH * DEPTH) * ROWS + row % ROWS * DEPTH + column % DEPTH);
}
INLINE void JOIN(put, KIND)(TYPE *tiles, i64 depth, i64 row, i64 column, lanes x) {
  JOIN(store, TYPE)(JOIN(place, KIND)(tiles, depth, row, column), x);
}

INLINE void JOIN(compute, KIND)(const struct cells *x, i64 row, i64 end) {
  for (end = end < x->rows ? end : x->rows; row < end; row++)
    JOIN(put, KIND)(x->outputs, x->depth, x->row + row, x->column,
                    next_cells(x->gates + row * COLUMNS, x->cells + row * LANES, x->clip, EXACT));
}

/* multiply: sums [ROWS][COLUMNS] = biases + tile [depth][ROWS][DEPTH] * weights [4][depth * DEPTH][LANES]. Without
   biases, the product is added to sums. Meanwhile, the waiting cells are computed. */
#ifdef TILES

/* Tiles 0 to 3 have the sums, 4 the operands, 6 and 7 the weights of a run. */
#define EACH_RUN(DO) DO(0, 6) DO(1, 7) DO(2, 6) DO(3, 7)
#define LOAD_SUMS(RUN, TILE) _tile_loadd(RUN, from + (RUN) * column, next);
#define ADD_RUN(RUN, TILE) \
  _tile_loadd(TILE, weights + (RUN) * w->step, 4 * LANES); \
  _tile_dpbf16ps(RUN, 4, TILE); \
  fetch(weights + (RUN) * w->step + ahead.distance, ahead.line, ahead.end);
#define STORE_SUMS(RUN, TILE) _tile_stored(RUN, sums + (RUN) * LANES, 4 * COLUMNS);

INLINE void JOIN(multiply, KIND)(float *sums, const TYPE *tile, const struct block *w, i64 rows, i64 depth,
                                 struct ahead ahead, const struct cells *cells) {
  const WEIGHT *weights = w->weights;
  const float *from = w->values ? w->values : sums;
  const i64 column = w->values ? w->value_step : LANES, next = w->values ? 0 : 4 * COLUMNS;
  (void)rows;
  __asm__ volatile("" ::: "memory"); /* compilers do not know what tile loads read */
  EACH_RUN(LOAD_SUMS)
  for (i64 k = 0; k < depth; k++, tile += ROWS * DEPTH, weights += DEPTH * LANES) {
    _tile_loadd(4, tile, 64);
    EACH_RUN(ADD_RUN)
    JOIN(compute, KIND)(cells, ROWS * k / AT_ONCE, ROWS * (k + 1) / AT_ONCE);
  }
  JOIN(compute, KIND)(cells, ROWS * depth / AT_ONCE, ROWS);
  EACH_RUN(STORE_SUMS)
}

#else

/* Number k of row r of x is x[r * row_step + k / DEPTH * block_step + k % DEPTH]. As many of the four runs are computed
   at once as the registers hold sums of. */
INLINE void JOIN(some_rows, KIND)(float *sums, const TYPE *x, i64 row_step, i64 block_step, const struct block *w,
                                  i64 depth, struct ahead ahead, const int rows) {
  const int runs = VECTOR == 16 || rows == 1 ? 4 : rows == 2 ? 2 : 1;
  for (int g = 0; g < 4; g += runs) {
    vector sum[6][4 * VECTORS];
    for (int r = 0; r < rows; r++)
      for (int v = 0; v < runs * VECTORS; v++)
        sum[r][v] = load(w->values ? w->values + (g + v / VECTORS) * w->value_step + v % VECTORS * VECTOR
                                   : sums + r * COLUMNS + g * LANES + v * VECTOR);
    const WEIGHT *row = (const WEIGHT *)w->weights + g * w->step;
    for (i64 block = 0; block < depth / DEPTH; block++)
      for (i64 k = 0; k < DEPTH; k += PAIR, row += PAIR * LANES) {
        if (k / PAIR >= ahead.line && k / PAIR < ahead.end)
          for (int run = 0; run < runs; run++) fetch(row + run * w->step + ahead.distance, 0, 1);
        for (int r = 0; r < rows; r++)
          for (int v = 0; v < runs * VECTORS; v++)
            ADD_PRODUCT(sum[r][v], x + r * row_step + block * block_step + k,
                        row + v / VECTORS * w->step + v % VECTORS * VECTOR * PAIR);
      }
    for (int r = 0; r < rows; r++) memcpy(sums + r * COLUMNS + g * LANES, sum[r], 4 * runs * LANES);
  }
}

/* The same for any number of rows, in parts of up to six rows, whose sums fit into the registers. */
static __attribute__((noinline)) void JOIN(all_rows, KIND)(float *sums, const TYPE *x, i64 row_step, i64 block_step,
                                                           const struct block *w, i64 depth, struct ahead ahead,
                                                           i64 rows) {
#define SOME_ROWS(COUNT) JOIN(some_rows, KIND)(sums, x, row_step, block_step, w, depth, ahead, COUNT)
  for (i64 parts = (rows + 5) / 6, now; parts; parts--) {
    now = (rows + parts - 1) / parts;
    switch (now) {
    case 1: SOME_ROWS(1); break;
    case 2: SOME_ROWS(2); break;
    case 3: SOME_ROWS(3); break;
    case 4: SOME_ROWS(4); break;
    case 5: SOME_ROWS(5); break;
    default: SOME_ROWS(6);
    }
    sums += now * COLUMNS, x += now * row_step, rows -= now, ahead.line = ahead.end;
  }
#undef SOME_ROWS
}

static inline void JOIN(multiply, KIND)(float *sums, const TYPE *tile, const struct block *w, i64 rows, i64 depth,
                                        struct ahead ahead, const struct cells *cells) {
  JOIN(all_rows, KIND)(sums, tile, DEPTH, ROWS * DEPTH, w, depth * DEPTH, ahead, rows < ROWS ? rows : ROWS);
  JOIN(compute, KIND)(cells, 0, ROWS); /* cells and products use the same units: mixing gains nothing */
}

#endif

/* sums [rows][COLUMNS] = biases + operands * weights, AT_ONCE * DEPTH columns of operands at a time. While the last of
   these columns are multiplied for 16 rows, the cells of `waiting` (the 16 rows before) are computed; `waiting` is then
   set to the rows just multiplied. If `waiting` is NULL, no cells are computed. */
static void JOIN(block, KIND)(float *sums, const TYPE *tiles, const struct block *w, i64 rows, i64 depth,
                              struct cells *waiting, float *cells, i64 column) {
  static const struct cells none;
  const i64 steps = depth / DEPTH, parts = (rows + ROWS - 1) / ROWS;
  for (i64 first = 0; first < steps; first += AT_ONCE) {
    const i64 count = steps - first < AT_ONCE ? steps - first : AT_ONCE;
    const int last = first + count == steps, ends = waiting && last;
    struct block chunk = *w;
    chunk.weights = (const WEIGHT *)w->weights + first * DEPTH * LANES;
    if (first) chunk.values = NULL;
    for (i64 part = 0; part < parts; part++) {
      struct ahead ahead = {AT_ONCE * DEPTH * LANES, LINES * part / parts, LINES * (part + 1) / parts};
      if (last) ahead.distance = 4 * w->step - first * DEPTH * LANES; /* the next block */
      const i64 row = part * ROWS;
      float *own = sums + row * COLUMNS;
      JOIN(multiply, KIND)(own, tiles + (row * steps + first * ROWS) * DEPTH, &chunk, rows - row, count, ahead,
                           ends ? waiting : &none);
      if (ends) {
        waiting->gates = own, waiting->cells = cells + row * LANES, waiting->row = row, waiting->column = column;
        waiting->rows = rows - row < ROWS ? rows - row : ROWS;
      }
    }
  }
}

/* Bytes of scratch memory that a thread needs, for a group of rows in the first `many` steps and words in others. */
int JOIN(layer_scratch, KIND)(const struct layer *x) {
  const i64 row = (i64)sizeof(TYPE) * (x->input + x->size + x->cells) + 4 * (x->cells + 2 * COLUMNS);
  const i64 word = (i64)sizeof(TYPE) * x->input + 16 * x->cells + (i64)sizeof(struct byte_row) + x->size;
  const i64 of_many = x->many ? x->group * row : 0, of_few = x->many < x->steps ? x->words * word : 0;
  return (int)(of_many > of_few ? of_many : of_few);
}

/* The cells of all rows of one step, from their gates. */
static void JOIN(step, KIND)(const struct layer *x, i64 d, i64 now, const struct group *group) {
  struct cells waiting = {.outputs = group->cell_outputs, .depth = x->cells, .clip = x->cell_clip};
  for (i64 k = 0; k < x->cells; k += LANES) {
    float *gates = group->sums + k / LANES % 2 * group->all_rows * COLUMNS; /* the other block's cells may wait */
    const struct block w = {(const WEIGHT *)x->weights[d] + 4 * k * group->depth, x->biases[d] + k,
                            LANES * group->depth, x->cells};
    JOIN(block, KIND)(gates, group->both, &w, now, group->depth, &waiting, group->cell + k * group->all_rows, k);
  }
  JOIN(compute, KIND)(&waiting, 0, ROWS);
}

/* The projection of all rows of one step: outputs, and the state of the next step. */
static void JOIN(project, KIND)(const struct layer *x, i64 d, i64 now, TYPE *outputs, const struct group *group) {
  static const float no_bias[LANES];
  for (i64 k = 0; k < x->size; k += COLUMNS) {
    const struct block w = {(const WEIGHT *)x->weight_hr[d] + k * x->cells, no_bias, LANES * x->cells, 0};
    JOIN(block, KIND)(group->sums, group->cell_outputs, &w, now, x->cells, NULL, NULL, 0);
    for (i64 row = 0; row < now; row++)
      for (i64 n = 0; n < COLUMNS; n += LANES) {
        lanes h = clip_lanes(load_f32(group->sums + row * COLUMNS + n), x->proj_clip);
        JOIN(store, TYPE)(outputs + row * x->size + k + n, h);
        JOIN(put, KIND)(group->both, group->depth, row, x->input + k + n, h);
      }
  }
}

/* Runs the first `many` steps of `rows` rows, from the row `first` on. */
static void JOIN(rows_to_the_end, KIND)(const struct layer *x, i64 d, i64 first, i64 rows, char *scratch) {
  struct group group = {.both = scratch, .all_rows = (rows + ROWS - 1) / ROWS * ROWS, .depth = x->input + x->size};
  group.cell_outputs = (TYPE *)group.both + group.all_rows * group.depth;
  group.cell = (float *)((TYPE *)group.cell_outputs + group.all_rows * x->cells);
  group.sums = group.cell + group.all_rows * x->cells;
  memset(scratch, 0, (size_t)((char *)group.sums - scratch));
  const TYPE *inputs = (const TYPE *)x->inputs[d] + first * x->input;
  TYPE *outputs = (TYPE *)x->outputs[d] + first * x->size,
       *hidden = (TYPE *)x->hidden + (d * x->rows + first) * x->size;
  float *state = x->cell + (d * x->rows + first) * x->cells;
  for (i64 row = 0; row < rows; row++) {
    for (i64 k = 0; k < x->size; k += LANES)
      JOIN(put, KIND)(group.both, group.depth, row, x->input + k, JOIN(load, TYPE)(hidden + row * x->size + k));
    for (i64 k = 0; k < x->cells; k += LANES)
      store_f32(group.cell + k * group.all_rows + row * LANES, load_f32(state + row * x->cells + k));
  }
  for (i64 t = 0; t < x->many && x->sizes[t] > first; t++) {
    i64 now = x->sizes[t] - first < rows ? x->sizes[t] - first : rows;
    for (i64 row = 0; row < now; row++)
      for (i64 k = 0; k < x->input; k += LANES)
        JOIN(put, KIND)(group.both, group.depth, row, k, JOIN(load, TYPE)(inputs + row * x->input + k));
    JOIN(step, KIND)(x, d, now, &group);
    JOIN(project, KIND)(x, d, now, outputs, &group);
    inputs += x->sizes[t] * x->input, outputs += x->sizes[t] * x->size;
  }
  for (i64 row = 0; row < rows; row++) {
    for (i64 k = 0; k < x->size; k += LANES)
      memcpy(hidden + row * x->size + k, JOIN(place, KIND)(group.both, group.depth, row, x->input + k),
             sizeof(TYPE) * LANES);
    for (i64 k = 0; k < x->cells; k += LANES)
      store_f32(state + row * x->cells + k, load_f32(group.cell + k * group.all_rows + row * LANES));
  }
}

static void JOIN(one_group, KIND)(const void *data, i64 n, i64 thread) { /* the first groups have the longest rows */
  const struct layer *x = data;
  i64 first = n / x->directions * x->group, rows = x->rows - first < x->group ? x->rows - first : x->group;
#ifdef TILES
  begin_tiles();
#endif
  JOIN(rows_to_the_end, KIND)(x, n % x->directions, first, rows, x->scratch + thread * x->scratch_bytes);
#ifdef TILES
  _tile_release();
#endif
}

#ifndef TILES

/* Rounds x [rows][depth] to bytes. The scale of a row with a number that is not finite is NaN. */
static void JOIN(round_to_bytes, KIND)(const TYPE *x, i64 rows, i64 depth, int8_t *bytes, struct byte_row *of) {
  for (; rows; rows--, x += depth, bytes += depth, of++) {
    float most = 1e-30f, total = 0.f;
    i64 sum = 0;
    for (i64 k = 0; k < depth; k++) {
      float size = fabsf(JOIN(widen, TYPE)(x[k]));
      most = size > most ? size : most;
      total += size;
    }
    const int finite = total < INFINITY;
    for (i64 k = 0; k < depth; k++) {
      bytes[k] = (int8_t)nearbyintf(finite ? JOIN(widen, TYPE)(x[k]) * (127.f / most) : 0.f);
      sum += bytes[k];
    }
    *of = (struct byte_row){finite ? most / 127.f : NAN, (int32_t)sum};
  }
}

/* The weights of a block of gates from a row of weights on, with their biases, or their scales if they are bytes. */
INLINE struct block JOIN(gates_block, KIND)(const struct layer *x, i64 d, i64 block, i64 row) {
  const i64 step = LANES * (x->input + x->size), first = 4 * block * step + row * LANES;
  const char *weights = (const char *)x->weights[d];
  weights += first * (x->scales ? 1 : (i64)sizeof(WEIGHT));
  return (struct block){weights, (x->scales ? x->scales : x->biases)[d] + block * LANES, step, x->cells};
}

/* The input half of the gates of some words: gates [cells / LANES][words][COLUMNS], for a range of the blocks. */
static void JOIN(input_half, KIND)(const struct layer *x, i64 d, const TYPE *inputs, i64 words, TYPE *operands,
                                   float *gates, struct range blocks, struct byte_row *of) {
  if (x->scales) JOIN(round_to_bytes, KIND)(inputs, words, x->input, (int8_t *)operands, of);
  for (i64 word = 0; word < words && !x->scales; word++)
    for (i64 k = 0; k < x->input; k += LANES)
      JOIN(put, KIND)(operands, x->input, word, k, JOIN(load, TYPE)(inputs + word * x->input + k));
  for (i64 block = blocks.begin; block < blocks.end; block++, gates += x->words * COLUMNS) {
    const struct block w = JOIN(gates_block, KIND)(x, d, block, 0);
    const float *bias = x->biases[d] + block * LANES;
    if (x->scales) {
      for (i64 k = 0; k < words * COLUMNS; k += LANES)
        store_f32(gates + k, load_f32(bias + k % COLUMNS / LANES * x->cells));
      multiply_bytes(gates, (const int8_t *)operands, of, x->input, &w, words);
    } else
      JOIN(block, KIND)(gates, operands, &w, words, x->input, NULL, NULL, 0);
  }
}

/* sums [rows][COLUMNS] += x [rows][depth] * weights [4][depth][LANES], a few DEPTH rows of weights at a time. */
INLINE void JOIN(add_few, KIND)(float *sums, const TYPE *x, const struct block *w, i64 depth, i64 rows) {
  const i64 most = rows == 1 ? depth : 2 * PAIR * DEPTH;
  for (i64 k = 0, count; k < depth; k += count) {
    count = depth - k < most ? depth - k : most;
    const struct block part = {(const WEIGHT *)w->weights + k * LANES, NULL, w->step, 0};
    const struct ahead ahead = {count * LANES, 0, k + count == depth ? 0 : LINES};
    JOIN(all_rows, KIND)(sums, x + k, depth, DEPTH, &part, count, ahead, rows);
  }
}

/* Runs one of `parts` parts of a direction, from step `many` on. The parts wait for each other twice in a step. */
static void JOIN(few_rows, KIND)(const struct layer *x, i64 d, i64 part, i64 parts, char *scratch) {
  const WEIGHT *weight_hr = (const WEIGHT *)x->weight_hr[d];
  const TYPE *inputs = x->inputs[d];
  TYPE *outputs = x->outputs[d];
  i64 cells = x->cells, size = x->size, words = 0, first = 0;
  TYPE *hidden = (TYPE *)x->hidden + d * x->rows * size, *cell_outputs = (TYPE *)x->cell_outputs + d * x->rows * cells;
  float *cell = x->cell + d * x->rows * cells, sums[ROWS * COLUMNS];
  TYPE *operands = (TYPE *)scratch;
  float *gates = (float *)(operands + x->words * x->input);
  struct byte_row *byte_rows = (struct byte_row *)(gates + x->words * 4 * cells);
  int8_t *bytes = (int8_t *)(byte_rows + x->words);
  struct barrier *barrier = (struct barrier *)(x->barriers + 64 * d);
  const struct range of_cells = share(cells / LANES, part, parts);
  const struct range of_outputs = share(weight_hr ? size / COLUMNS : 0, part, parts);
  const struct range copied = share(weight_hr ? 0 : size, part, parts);
  const size_t of_part = sizeof(TYPE) * (size_t)(copied.end - copied.begin);
  memset(operands, 0, sizeof(TYPE) * (size_t)(x->words * x->input));
  for (i64 t = 0; t < x->many; t++) inputs += x->sizes[t] * x->input, outputs += x->sizes[t] * size;
  for (i64 t = x->many; t < x->steps; t++) {
    const i64 rows = x->sizes[t];
    if (first == words) { /* as many steps as there is memory for */
      first = words = 0;
      for (i64 next = t; next < x->steps && words + x->sizes[next] <= x->words; next++) words += x->sizes[next];
      JOIN(input_half, KIND)(x, d, inputs, words, operands, gates, of_cells, byte_rows);
      inputs += words * x->input;
    }
    if (x->scales) JOIN(round_to_bytes, KIND)(hidden, rows, size, bytes, byte_rows);
    for (i64 n = 0; n < of_cells.end - of_cells.begin; n++) {
      i64 own = t % 2 ? of_cells.end - of_cells.begin - 1 - n : n; /* weights read last are in the cache */
      i64 block = of_cells.begin + own, k = block * LANES;
      const struct block w = JOIN(gates_block, KIND)(x, d, block, x->input);
      float *sum = gates + (own * x->words + first) * COLUMNS;
      if (x->scales)
        multiply_bytes(sum, bytes, byte_rows, size, &w, rows);
      else
        JOIN(add_few, KIND)(sum, hidden, &w, size, rows);
      for (i64 b = 0; b < rows; b++)
        JOIN(store, TYPE)(cell_outputs + b * cells + k,
                          next_cells(sum + b * COLUMNS, cell + b * cells + k, x->cell_clip, EXACT));
    }
    if (parts > 1) wait_for_all(barrier, parts);
    for (i64 n = 0; n < of_outputs.end - of_outputs.begin; n++) {
      i64 p = (t % 2 ? of_outputs.end - 1 - n : of_outputs.begin + n) * COLUMNS;
      for (i64 b = 0; b < rows; b += ROWS) {
        i64 count = rows - b < ROWS ? rows - b : ROWS;
        const struct block w = {weight_hr + p * cells, NULL, LANES * cells, 0};
        memset(sums, 0, sizeof sums);
        JOIN(add_few, KIND)(sums, cell_outputs + b * cells, &w, cells, count);
        for (i64 k = 0; k < count * COLUMNS; k += LANES) {
          i64 place = (b + k / COLUMNS) * size + p + k % COLUMNS;
          JOIN(store, TYPE)(hidden + place, clip_lanes(load_f32(sums + k), x->proj_clip));
        }
      }
    }
    for (i64 b = 0; b < rows; b++)
      memcpy(hidden + b * size + copied.begin, cell_outputs + b * cells + copied.begin, of_part);
    if (parts > 1) wait_for_all(barrier, parts);
    if (part == 0) memcpy(outputs, hidden, sizeof(TYPE) * (size_t)(rows * size));
    first += rows, outputs += rows * size;
  }
}

/* Directions whose weights are large run one after the other, each on all threads, so that the cores' shared cache
   holds those of one. Others run at the same time: their steps are short, and a barrier takes microseconds. */
static void JOIN(one_thread, KIND)(const void *data, i64 thread, i64 threads) {
  const struct layer *x = data;
  const i64 bytes = (i64)sizeof(WEIGHT) * 5 * x->cells * x->size; /* that a step reads */
  const i64 together = bytes > LARGE ? 1 : x->directions < threads ? x->directions : threads;
  const i64 parts = threads / together;
  for (i64 d = thread / parts; thread < parts * together && d < x->directions; d += together)
    JOIN(few_rows, KIND)(x, d, thread % parts, parts, x->scratch + thread * x->scratch_bytes);
}

#endif

void JOIN(layer, KIND)(const struct layer *x) {
  if (x->many) share_out(JOIN(one_group, KIND), x, x->directions * ((x->rows + x->group - 1) / x->group), x->threads);
#ifndef TILES
  if (x->many < x->steps) together(JOIN(one_thread, KIND), x, (int)x->threads);
#endif
}

#undef KIND
#undef TYPE
#undef WEIGHT
#undef ADD_PRODUCT
