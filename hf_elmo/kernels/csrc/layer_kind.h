/* One kind of product: the layout of operands, the multiplication with the cells in between, and the loops over steps.
 *
 * Operands have the layout [row / ROWS][column / DEPTH][ROWS][DEPTH]. layer.c defines the macros before it includes
 * this file, which undefines them at its end.
 */

/* Writes LANES numbers of a row in the operands' layout. */
INLINE void JOIN(put, KIND)(TYPE *tiles, i64 depth, i64 row, i64 column, lanes x) {
  TYPE *place = tiles + (row / ROWS * depth + column / DEPTH * DEPTH) * ROWS;
  JOIN(store, TYPE)(place + row % ROWS * DEPTH + column % DEPTH, x);
}

/* Gates [ROWS][COLUMNS] whose cells [ROWS][LANES] are not computed yet, and where in `outputs` their outputs begin. */
struct JOIN(cells, KIND) {
  const float *gates;
  float *cells, clip;
  TYPE *outputs;
  i64 rows, row, column, depth;
};

INLINE void JOIN(compute, KIND)(const struct JOIN(cells, KIND) *x, i64 row, i64 end) {
  for (end = end < x->rows ? end : x->rows; row < end; row++)
    JOIN(put, KIND)(x->outputs, x->depth, x->row + row, x->column,
                    next_cells(x->gates + row * COLUMNS, x->cells + row * LANES, x->clip, EXACT));
}

/* multiply: sums [ROWS][COLUMNS] = bias + tile [depth][ROWS][DEPTH] * weights [4][depth * DEPTH][LANES], whose gates are `gate_step` numbers apart. If bias is NULL, the product is added to sums. Meanwhile, the waiting cells are
   computed, and part number `part` of `parts` parts of the weights that are `ahead` numbers further on is prefetched. */
#ifdef TILES

/* Adds the numbers in tile 4 times the weights of a gate. */
#define ADD_GATE(GATE, TILE) \
  _tile_loadd(TILE, weights + (GATE) * gate_step, 4 * LANES); \
  _tile_dpbf16ps(GATE, 4, TILE); \
  fetch(weights + (GATE) * gate_step + ahead, line, end)

INLINE void JOIN(multiply, KIND)(float *sums, const TYPE *tile, const WEIGHT *weights, i64 gate_step,
                                 const float *bias, i64 bias_step, i64 rows, i64 depth, i64 ahead,
                                 const struct JOIN(cells, KIND) *cells, i64 part, i64 parts) {
  const float *from = bias ? bias : sums;
  i64 column = bias ? bias_step : LANES, next = bias ? 0 : 4 * COLUMNS, line = LINES * part / parts;
  const i64 end = LINES * (part + 1) / parts;
  (void)rows;
  __asm__ volatile("" ::: "memory"); /* compilers do not know what tile loads read */
  _tile_loadd(0, from, next);
  _tile_loadd(1, from + column, next);
  _tile_loadd(2, from + 2 * column, next);
  _tile_loadd(3, from + 3 * column, next);
  for (i64 k = 0; k < depth; k++, tile += ROWS * DEPTH, weights += DEPTH * LANES) {
    _tile_loadd(4, tile, 64);
    ADD_GATE(0, 6); ADD_GATE(1, 7); ADD_GATE(2, 6); ADD_GATE(3, 7);
    JOIN(compute, KIND)(cells, ROWS * k / AT_ONCE, ROWS * (k + 1) / AT_ONCE);
  }
  JOIN(compute, KIND)(cells, ROWS * depth / AT_ONCE, ROWS);
  _tile_stored(0, sums, 4 * COLUMNS);
  _tile_stored(1, sums + LANES, 4 * COLUMNS);
  _tile_stored(2, sums + 2 * LANES, 4 * COLUMNS);
  _tile_stored(3, sums + 3 * LANES, 4 * COLUMNS);
}

#undef ADD_GATE

#else

/* Number k of row r of x is x[r * row_step + k / DEPTH * block_step + k % DEPTH]. As many of the four gates are computed at
   once as the registers hold sums of. Of each DEPTH rows of the weights that are `ahead` numbers further on, cache lines
   `line` to `end` of each gate are prefetched. */
INLINE void JOIN(some_rows, KIND)(float *sums, const TYPE *x, i64 row_step, i64 block_step, const WEIGHT *weights,
                                  i64 gate_step, const float *bias, i64 bias_step, i64 depth, i64 ahead, i64 line, i64 end,
                                  const int rows) {
  const int gates = VECTOR == 16 || rows == 1 ? 4 : rows == 2 ? 2 : 1;
  for (int g = 0; g < 4; g += gates) {
    vector sum[6][4 * VECTORS];
    for (int r = 0; r < rows; r++)
      for (int v = 0; v < gates * VECTORS; v++)
        sum[r][v] = *(const vector *)((bias ? bias + (g + v / VECTORS) * bias_step : sums + r * COLUMNS + g * LANES) +
                                      (bias ? v % VECTORS : v) * VECTOR);
    const WEIGHT *row = weights + g * gate_step;
    for (i64 block = 0; block < depth / DEPTH; block++)
      for (i64 k = 0; k < DEPTH; k += PAIR, row += PAIR * LANES) {
        if (k / PAIR >= line && k / PAIR < end)
          for (int gate = 0; gate < gates; gate++) fetch(row + gate * gate_step + ahead, 0, 1);
        for (int r = 0; r < rows; r++)
          for (int v = 0; v < gates * VECTORS; v++)
            ADD_PRODUCT(sum[r][v], x + r * row_step + block * block_step + k,
                        row + v / VECTORS * gate_step + v % VECTORS * VECTOR * PAIR);
      }
    for (int r = 0; r < rows; r++) memcpy(sums + r * COLUMNS + g * LANES, sum[r], 4 * gates * LANES);
  }
}

/* The same for any number of rows, in parts of up to six rows, whose sums fit into the registers. */
static __attribute__((noinline)) void JOIN(all_rows, KIND)(float *sums, const TYPE *x, i64 row_step, i64 block_step,
                                                           const WEIGHT *weights, i64 gate_step, const float *bias,
                                                           i64 bias_step, i64 depth, i64 ahead, i64 line,
                                                           i64 end, i64 rows) {
#define SOME_ROWS(COUNT) \
  JOIN(some_rows, KIND)(sums, x, row_step, block_step, weights, gate_step, bias, bias_step, depth, ahead, line, end, COUNT)
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
    sums += now * COLUMNS, x += now * row_step, rows -= now, line = end;
  }
#undef SOME_ROWS
}

static inline void JOIN(multiply, KIND)(float *sums, const TYPE *tile, const WEIGHT *weights, i64 gate_step,
                                        const float *bias, i64 bias_step, i64 rows, i64 depth, i64 ahead,
                                        const struct JOIN(cells, KIND) *cells, i64 part, i64 parts) {
  JOIN(all_rows, KIND)(sums, tile, DEPTH, ROWS * DEPTH, weights, gate_step, bias, bias_step, depth * DEPTH, ahead,
                       LINES * part / parts, LINES * (part + 1) / parts, rows < ROWS ? rows : ROWS);
  JOIN(compute, KIND)(cells, 0, ROWS); /* cells and products use the same units: mixing gains nothing */
}

#endif

/* sums [rows][COLUMNS] = bias + operands * weights, AT_ONCE * DEPTH columns of operands at a time. While the last of
   these columns are multiplied for 16 rows, the cells of `waiting` (the 16 rows before) are computed; `waiting` is then
   set to the rows just multiplied. If `waiting` is NULL, no cells are computed. */
static void JOIN(block, KIND)(float *sums, const TYPE *tiles, const WEIGHT *weights, i64 gate_step,
                              const float *bias, i64 bias_step, i64 rows, i64 depth, struct JOIN(cells, KIND) *waiting,
                              float *cells, i64 column) {
  static const struct JOIN(cells, KIND) none;
  i64 steps = depth / DEPTH, chunks = (steps + AT_ONCE - 1) / AT_ONCE;
  for (i64 chunk = 0; chunk < chunks; chunk++) {
    i64 first = chunk * AT_ONCE, count = steps - first < AT_ONCE ? steps - first : AT_ONCE;
    int last = chunk == chunks - 1, ends = waiting && last;
    i64 ahead = last ? 4 * gate_step - first * DEPTH * LANES : AT_ONCE * DEPTH * LANES; /* block, or chunk */
    for (i64 row = 0; row < rows; row += ROWS) {
      float *own = sums + row * COLUMNS;
      JOIN(multiply, KIND)(own, tiles + (row * steps + first * ROWS) * DEPTH, weights + first * DEPTH * LANES,
                           gate_step, chunk ? NULL : bias, bias_step, rows - row, count, ahead, ends ? waiting : &none,
                           row / ROWS, (rows + ROWS - 1) / ROWS);
      if (ends) {
        waiting->gates = own, waiting->cells = cells + row * LANES, waiting->row = row, waiting->column = column;
        waiting->rows = rows - row < ROWS ? rows - row : ROWS;
      }
    }
  }
}

/* Bytes of scratch memory that a thread needs for a group of rows, a multiple of ROWS. */
int JOIN(layer_many_scratch, KIND)(const struct layer *x) {
  i64 operands = x->input + x->size + x->cells;
  return (int)(x->group * ((i64)sizeof(TYPE) * operands + 4 * (x->cells + 2 * COLUMNS)));
}

/* The addresses of a group's operands, cells and sums in its scratch memory. */
struct JOIN(group, KIND) {
  TYPE *both, *cell_outputs; /* word and hidden state side by side; the input of the projection */
  float *cell, *sums;           /* [cells / LANES][all_rows][LANES]; two blocks of [all_rows][COLUMNS] */
  i64 all_rows, depth;
};

/* The cells of all rows of one step, from their gates. */
static void JOIN(step, KIND)(const struct layer *x, i64 d, i64 now, const struct JOIN(group, KIND) *group) {
  const WEIGHT *weights = x->weights[d];
  struct JOIN(cells, KIND) waiting = {.outputs = group->cell_outputs, .depth = x->cells, .clip = x->cell_clip};
  for (i64 k = 0; k < x->cells; k += LANES) {
    float *gates = group->sums + k / LANES % 2 * group->all_rows * COLUMNS; /* the other block's cells may wait */
    JOIN(block, KIND)(gates, group->both, weights + 4 * k * group->depth, LANES * group->depth,
                      x->biases[d] + k, x->cells, now, group->depth, &waiting, group->cell + k * group->all_rows, k);
  }
  JOIN(compute, KIND)(&waiting, 0, ROWS);
}

/* The projection of all rows of one step: outputs, and the state of the next step. */
static void JOIN(project, KIND)(const struct layer *x, i64 d, i64 now, TYPE *outputs,
                                const struct JOIN(group, KIND) *group) {
  static const float no_bias[LANES];
  const WEIGHT *weight_hr = x->weight_hr[d];
  for (i64 k = 0; k < x->size; k += COLUMNS) {
    JOIN(block, KIND)(group->sums, group->cell_outputs, weight_hr + k * x->cells, LANES * x->cells, no_bias, 0,
                      now, x->cells, NULL, NULL, 0);
    for (i64 row = 0; row < now; row++)
      for (i64 n = 0; n < COLUMNS; n += LANES) {
        lanes h = clip_lanes(load_f32(group->sums + row * COLUMNS + n), x->proj_clip);
        JOIN(store, TYPE)(outputs + row * x->size + k + n, h);
        JOIN(put, KIND)(group->both, group->depth, row, x->input + k + n, h);
      }
  }
}

/* Runs all steps of `rows` rows, from the row `first` on. */
static void JOIN(rows_to_the_end, KIND)(const struct layer *x, i64 d, i64 first, i64 rows, char *scratch) {
  struct JOIN(group, KIND) group = {.all_rows = (rows + ROWS - 1) / ROWS * ROWS, .depth = x->input + x->size};
  group.both = (TYPE *)scratch, group.cell_outputs = group.both + group.all_rows * group.depth;
  group.cell = (float *)(group.cell_outputs + group.all_rows * x->cells);
  group.sums = group.cell + group.all_rows * x->cells;
  memset(scratch, 0, (size_t)JOIN(layer_many_scratch, KIND)(x));
  const TYPE *inputs = (const TYPE *)x->inputs[d] + first * x->input;
  TYPE *outputs = (TYPE *)x->outputs[d] + first * x->size;
  const TYPE *hidden = (const TYPE *)x->hidden + (d * x->rows + first) * x->size;
  float *state = x->cell + (d * x->rows + first) * x->cells;
  for (i64 row = 0; row < rows; row++) {
    for (i64 k = 0; k < x->size; k += LANES)
      JOIN(put, KIND)(group.both, group.depth, row, x->input + k, JOIN(load, TYPE)(hidden + row * x->size + k));
    for (i64 k = 0; k < x->cells; k += LANES)
      store_f32(group.cell + k * group.all_rows + row * LANES, load_f32(state + row * x->cells + k));
  }
  for (i64 t = 0; t < x->steps && x->sizes[t] > first; t++) {
    i64 now = x->sizes[t] - first < rows ? x->sizes[t] - first : rows;
    for (i64 row = 0; row < now; row++)
      for (i64 k = 0; k < x->input; k += LANES)
        JOIN(put, KIND)(group.both, group.depth, row, k, JOIN(load, TYPE)(inputs + row * x->input + k));
    JOIN(step, KIND)(x, d, now, &group);
    JOIN(project, KIND)(x, d, now, outputs, &group);
    inputs += x->sizes[t] * x->input, outputs += x->sizes[t] * x->size;
  }
  for (i64 row = 0; row < rows; row++)
    for (i64 k = 0; k < x->cells; k += LANES)
      store_f32(state + row * x->cells + k, load_f32(group.cell + k * group.all_rows + row * LANES));
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

void JOIN(layer_many, KIND)(const struct layer *x) {
  share_out(JOIN(one_group, KIND), x, x->directions * ((x->rows + x->group - 1) / x->group), x->threads);
}

#ifndef TILES

/* Bytes of scratch memory that a thread needs for the operands and gates of `group` words, a multiple of ROWS. */
int JOIN(layer_few_scratch, KIND)(const struct layer *x) {
  i64 bytes = (i64)sizeof(struct byte_row) + x->size; /* of a hidden state in 8 bits */
  return (int)(x->group * ((i64)sizeof(TYPE) * x->input + 16 * x->cells + bytes));
}

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

/* The input half of the gates of some words: gates [cells / LANES][group][COLUMNS], for a range of the blocks. */
static void JOIN(input_half, KIND)(const struct layer *x, i64 d, const TYPE *inputs, i64 words, TYPE *operands,
                                   float *gates, struct range blocks, struct byte_row *of) {
  const i64 gate_step = LANES * (x->input + x->size);
  if (x->scales) JOIN(round_to_bytes, KIND)(inputs, words, x->input, (int8_t *)operands, of);
  for (i64 word = 0; word < words && !x->scales; word++)
    for (i64 k = 0; k < x->input; k += LANES)
      JOIN(put, KIND)(operands, x->input, word, k, JOIN(load, TYPE)(inputs + word * x->input + k));
  for (i64 block = blocks.begin; block < blocks.end; block++, gates += x->group * COLUMNS) {
    const float *bias = x->biases[d] + block * LANES;
    if (x->scales) {
      for (i64 k = 0; k < words * COLUMNS; k += LANES)
        store_f32(gates + k, load_f32(bias + k % COLUMNS / LANES * x->cells));
      multiply_bytes(gates, (const int8_t *)operands, of, x->input, (const int8_t *)x->weights[d] + 4 * block * gate_step,
                     gate_step, x->scales[d] + block * LANES, x->cells, words);
    } else
      JOIN(block, KIND)(gates, operands, (const WEIGHT *)x->weights[d] + 4 * block * gate_step, gate_step, bias, x->cells,
                        words, x->input, NULL, NULL, 0);
  }
}

/* sums [rows][COLUMNS] += x [rows][depth] * weights [4][depth][LANES], a few DEPTH rows of weights at a time. */
INLINE void JOIN(add_few, KIND)(float *sums, const TYPE *x, const WEIGHT *weights, i64 gate_step, i64 depth, i64 rows) {
  const i64 most = rows == 1 ? depth : 2 * PAIR * DEPTH;
  for (i64 k = 0, count; k < depth; k += count, weights += count * LANES) {
    count = depth - k < most ? depth - k : most;
    JOIN(all_rows, KIND)(sums, x + k, depth, DEPTH, weights, gate_step, NULL, 0, count, count * LANES, 0,
                        k + count == depth ? 0 : LINES, rows);
  }
}

/* Runs one of `parts` parts of a direction, for all steps. The parts wait for each other twice in a step. */
static void JOIN(few_rows, KIND)(const struct layer *x, i64 d, i64 part, i64 parts, char *scratch) {
  const WEIGHT *weight_hr = x->weight_hr[d];
  const TYPE *inputs = x->inputs[d];
  TYPE *outputs = x->outputs[d];
  i64 cells = x->cells, size = x->size, words = 0, first = 0;
  TYPE *hidden = (TYPE *)x->hidden + d * x->rows * size, *cell_outputs = (TYPE *)x->cell_outputs + d * x->rows * cells;
  float *cell = x->cell + d * x->rows * cells, sums[ROWS * COLUMNS];
  TYPE *operands = (TYPE *)scratch;
  float *gates = (float *)(operands + x->group * x->input);
  struct byte_row *byte_rows = (struct byte_row *)(gates + x->group * 4 * cells);
  int8_t *bytes = (int8_t *)(byte_rows + x->group);
  const struct range of_cells = share(cells / LANES, part, parts);
  const struct range of_outputs = share(weight_hr ? size / COLUMNS : 0, part, parts);
  const struct range copied = share(weight_hr ? 0 : size / LANES, part, parts);
  memset(operands, 0, sizeof(TYPE) * (size_t)(x->group * x->input));
  for (i64 t = 0; t < x->steps; t++) {
    const i64 rows = x->sizes[t];
    if (first == words) { /* as many steps as there is memory for */
      first = words = 0;
      for (i64 next = t; next < x->steps && words + x->sizes[next] <= x->group; next++) words += x->sizes[next];
      JOIN(input_half, KIND)(x, d, inputs, words, operands, gates, of_cells, byte_rows);
      inputs += words * x->input;
    }
    if (x->scales) JOIN(round_to_bytes, KIND)(hidden, rows, size, bytes, byte_rows);
    for (i64 n = 0; n < of_cells.end - of_cells.begin; n++) {
      i64 own = t % 2 ? of_cells.end - of_cells.begin - 1 - n : n; /* weights read last are in the cache */
      i64 block = of_cells.begin + own, k = block * LANES, gate_step = LANES * (x->input + size);
      i64 first_weight = 4 * block * gate_step + x->input * LANES;
      float *sum = gates + (own * x->group + first) * COLUMNS;
      if (x->scales)
        multiply_bytes(sum, bytes, byte_rows, size, (const int8_t *)x->weights[d] + first_weight, gate_step,
                       x->scales[d] + k, cells, rows);
      else
        JOIN(add_few, KIND)(sum, hidden, (const WEIGHT *)x->weights[d] + first_weight, gate_step, size, rows);
      for (i64 b = 0; b < rows; b++)
        JOIN(store, TYPE)(cell_outputs + b * cells + k,
                          next_cells(sum + b * COLUMNS, cell + b * cells + k, x->cell_clip, EXACT));
    }
    if (parts > 1) openmp.barrier();
    for (i64 n = 0; n < of_outputs.end - of_outputs.begin; n++) {
      i64 p = (t % 2 ? of_outputs.end - 1 - n : of_outputs.begin + n) * COLUMNS;
      for (i64 b = 0; b < rows; b += ROWS) {
        i64 count = rows - b < ROWS ? rows - b : ROWS;
        memset(sums, 0, sizeof sums);
        JOIN(add_few, KIND)(sums, cell_outputs + b * cells, weight_hr + p * cells, LANES * cells, cells, count);
        for (i64 k = 0; k < count * COLUMNS; k += LANES) {
          i64 place = (b + k / COLUMNS) * size + p + k % COLUMNS;
          JOIN(store, TYPE)(hidden + place, clip_lanes(load_f32(sums + k), x->proj_clip));
        }
      }
    }
    for (i64 b = 0; b < rows; b++)
      for (i64 k = copied.begin * LANES; k < copied.end * LANES; k += LANES)
        JOIN(store, TYPE)(hidden + b * size + k, JOIN(load, TYPE)(cell_outputs + b * cells + k));
    if (parts > 1) openmp.barrier();
    if (part == 0) memcpy(outputs, hidden, sizeof(TYPE) * (size_t)(rows * size));
    first += rows, outputs += rows * size;
  }
}

/* Directions whose weights are large run one after the other, each on all threads, so that the cores' shared cache holds
   the weights of one of them. Others run at the same time: their steps are short, and a barrier takes microseconds. */
static void JOIN(one_thread, KIND)(const void *data, i64 thread, i64 threads) {
  const struct layer *x = data;
  const i64 bytes = (i64)sizeof(WEIGHT) * 5 * x->cells * x->size; /* that a step reads */
  const i64 together = bytes > LARGE ? 1 : x->directions < threads ? x->directions : threads;
  const i64 parts = threads / together;
  for (i64 d = thread / parts; d < x->directions; d += together)
    if (thread < parts * together)
      JOIN(few_rows, KIND)(x, d, thread % parts, parts, x->scratch + thread * x->scratch_bytes);
  for (i64 t = 0; parts > 1 && thread >= parts * together && t < 2 * x->steps; t++)
    openmp.barrier(); /* every thread takes part in a barrier */
}

void JOIN(layer_few, KIND)(const struct layer *x) { together(JOIN(one_thread, KIND), x, (int)x->threads); }

#endif

#undef KIND
#undef TYPE
#undef WEIGHT
#undef ADD_PRODUCT
