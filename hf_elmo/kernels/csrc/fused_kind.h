/* One kind of product: the layout of operands, the multiplication with the cells in between, and the loop over steps.
 *
 * Operands have the layout [row / ROWS][column / DEPTH][PARTS][ROWS][DEPTH]; weights are in blocks of COLUMNS. fused.c
 * defines the macros before it includes this file, which undefines them at its end.
 */

/* Writes LANES numbers of a row in the operands' layout. */
INLINE void JOIN(put, KIND)(OPERAND *tiles, i64 depth, i64 row, i64 column, lanes x) {
  OPERAND *place = tiles + (row / ROWS * depth + column / DEPTH * DEPTH) * PARTS * ROWS;
  place += row % ROWS * DEPTH + column % DEPTH;
  JOIN(store, OPERAND)(place, x);
  if (PARTS == 2) JOIN(store, OPERAND)(place + ROWS * DEPTH, _mm512_sub_ps(x, JOIN(load, OPERAND)(place)));
}

/* Gates [ROWS][COLUMNS] whose cells [ROWS][LANES] are not computed yet, and where in `outputs` their outputs begin. */
struct JOIN(cells, KIND) {
  const float *gates;
  float *cells, clip;
  OPERAND *outputs;
  i64 rows, row, column, depth;
};

INLINE void JOIN(compute, KIND)(const struct JOIN(cells, KIND) *x, i64 row, i64 end) {
  for (end = end < x->rows ? end : x->rows; row < end; row++)
    JOIN(put, KIND)(x->outputs, x->depth, x->row + row, x->column,
                    next_cells(x->gates + row * COLUMNS, x->cells + row * LANES, x->clip, EXACT));
}

/* multiply: sums [ROWS][COLUMNS] = bias + tile [depth][PARTS][ROWS][DEPTH] * weights [depth][...]. If bias is NULL, the
   product is added to sums. Meanwhile, the waiting cells are computed, and part number `part` of `parts` parts of the
   next weights is prefetched. */
#ifdef TILES

INLINE void JOIN(multiply, KIND)(float *sums, const OPERAND *tile, const OPERAND *weights, const float *bias,
                                 i64 bias_step, i64 rows, i64 depth, const struct JOIN(cells, KIND) *cells,
                                 i64 part, i64 parts) {
  const float *from = bias ? bias : sums;
  i64 column = bias ? bias_step : LANES, next = bias ? 0 : 4 * COLUMNS, lines[5];
  (void)rows;
  for (i64 k = 0; k < 5; k++) lines[k] = PARTS * COLUMNS * (4 * part + k) / (4 * parts);
  __asm__ volatile("" ::: "memory"); /* compilers do not know what tile loads read */
  _tile_loadd(0, from, next);
  _tile_loadd(1, from + column, next);
  _tile_loadd(2, from + 2 * column, next);
  _tile_loadd(3, from + 3 * column, next);
  for (i64 k = 0; k < depth; k++, tile += PARTS * ROWS * DEPTH, weights += PARTS * COLUMNS * DEPTH) {
    const OPERAND *ahead = weights + AT_ONCE * PARTS * COLUMNS * DEPTH;
    PRODUCTS
    JOIN(compute, KIND)(cells, ROWS * k / AT_ONCE, ROWS * (k + 1) / AT_ONCE);
  }
  JOIN(compute, KIND)(cells, ROWS * depth / AT_ONCE, ROWS);
  _tile_stored(0, sums, 4 * COLUMNS);
  _tile_stored(1, sums + LANES, 4 * COLUMNS);
  _tile_stored(2, sums + 2 * LANES, 4 * COLUMNS);
  _tile_stored(3, sums + 3 * LANES, 4 * COLUMNS);
}

#else

INLINE void JOIN(rows, KIND)(float *sums, const OPERAND *tile, const OPERAND *weights, const float *bias,
                             i64 bias_step, i64 depth, const int rows, i64 line, i64 end) {
  lanes sum[6][4];
  for (int r = 0; r < rows; r++)
    for (int g = 0; g < 4; g++) sum[r][g] = load_f32(bias ? bias + g * bias_step : sums + r * COLUMNS + g * LANES);
  for (; depth > 0; depth--, tile += ROWS * DEPTH, weights += COLUMNS * DEPTH)
    for (i64 k = 0; k < DEPTH / PAIR; k++) {
      if (line + k < end) fetch(weights + AT_ONCE * COLUMNS * DEPTH, line + k, line + k + 1);
      for (int r = 0; r < rows; r++)
        for (int g = 0; g < 4; g++)
          sum[r][g] = ADD_PRODUCT(sum[r][g], tile + r * DEPTH + PAIR * k, weights + (k * 4 + g) * PAIR * LANES);
    }
  for (int r = 0; r < rows; r++)
    for (int g = 0; g < 4; g++) store_f32(sums + r * COLUMNS + g * LANES, sum[r][g]);
}

/* 16 rows are computed as 6, 5 and 5 rows, because the sums of this many rows fit into the registers. */
static void JOIN(six_rows, KIND)(float *sums, const OPERAND *tile, const OPERAND *weights, const float *bias,
                                 i64 bias_step, i64 depth, i64 line, i64 end) {
  JOIN(rows, KIND)(sums, tile, weights, bias, bias_step, depth, 6, line, end);
}
static void JOIN(five_rows, KIND)(float *sums, const OPERAND *tile, const OPERAND *weights, const float *bias,
                                  i64 bias_step, i64 depth) {
  JOIN(rows, KIND)(sums, tile, weights, bias, bias_step, depth, 5, 0, 0);
}

static inline void JOIN(multiply, KIND)(float *sums, const OPERAND *tile, const OPERAND *weights, const float *bias,
                                        i64 bias_step, i64 rows, i64 depth, const struct JOIN(cells, KIND) *cells,
                                        i64 part, i64 parts) {
  i64 lines = COLUMNS * DEPTH * (i64)sizeof(OPERAND) / 64;
  JOIN(six_rows, KIND)(sums, tile, weights, bias, bias_step, depth, lines * part / parts, lines * (part + 1) / parts);
  if (rows > 6) JOIN(five_rows, KIND)(sums + 6 * COLUMNS, tile + 6 * DEPTH, weights, bias, bias_step, depth);
  if (rows > 11) JOIN(five_rows, KIND)(sums + 11 * COLUMNS, tile + 11 * DEPTH, weights, bias, bias_step, depth);
  JOIN(compute, KIND)(cells, 0, ROWS); /* cells and products use the same units: mixing gains nothing */
}

#endif

/* sums [rows][COLUMNS] = bias + operands * weights, AT_ONCE * DEPTH columns of operands at a time. While the last of
   these columns are multiplied for 16 rows, the cells of `waiting` (the 16 rows before) are computed; `waiting` is then
   set to the rows just multiplied. If `waiting` is NULL, no cells are computed. */
static void JOIN(block, KIND)(float *sums, const OPERAND *tiles, const OPERAND *weights, const float *bias,
                              i64 bias_step, i64 rows, i64 depth, struct JOIN(cells, KIND) *waiting, float *cells,
                              i64 column) {
  static const struct JOIN(cells, KIND) none;
  i64 steps = depth / DEPTH, chunks = (steps + AT_ONCE - 1) / AT_ONCE, size = PARTS * DEPTH;
  for (i64 chunk = 0; chunk < chunks; chunk++) {
    i64 first = chunk * AT_ONCE, count = steps - first < AT_ONCE ? steps - first : AT_ONCE;
    int ends = waiting && chunk == chunks - 1;
    for (i64 row = 0; row < rows; row += ROWS) {
      float *own = sums + row * COLUMNS;
      JOIN(multiply, KIND)(own, tiles + (row * steps + first * ROWS) * size, weights + first * COLUMNS * size,
                           chunk ? NULL : bias, bias_step, rows - row, count, ends ? waiting : &none, row / ROWS,
                           (rows + ROWS - 1) / ROWS);
      if (ends) {
        waiting->gates = own, waiting->cells = cells + row * LANES, waiting->row = row, waiting->column = column;
        waiting->rows = rows - row < ROWS ? rows - row : ROWS;
      }
    }
  }
}

/* Bytes of scratch memory that a group of rows needs. */
i64 JOIN(scratch, KIND)(i64 rows, i64 input, i64 size, i64 cells) {
  rows = (rows + ROWS - 1) / ROWS * ROWS;
  return rows * ((i64)sizeof(OPERAND) * PARTS * (input + size + cells) + 4 * (cells + 2 * COLUMNS));
}

/* The addresses of a group's operands, cells and sums in its scratch memory. */
struct JOIN(group, KIND) {
  OPERAND *both, *cell_outputs; /* word and hidden state side by side; the input of the projection */
  float *cell, *sums;           /* [cells / LANES][all_rows][LANES]; two blocks of [all_rows][COLUMNS] */
  i64 all_rows, depth;
};

/* The cells of all rows of one step, from their gates. */
static void JOIN(step, KIND)(const struct layer *x, i64 d, i64 now, const struct JOIN(group, KIND) *group) {
  const OPERAND *weights = x->weights[d];
  struct JOIN(cells, KIND) waiting = {.outputs = group->cell_outputs, .depth = x->cells, .clip = x->cell_clip};
  for (i64 k = 0; k < x->cells; k += LANES) {
    float *gates = group->sums + k / LANES % 2 * group->all_rows * COLUMNS; /* the other block's cells may wait */
    JOIN(block, KIND)(gates, group->both, weights + 4 * k * group->depth * PARTS, x->biases[d] + k, x->cells, now,
                      group->depth, &waiting, group->cell + k * group->all_rows, k);
  }
  JOIN(compute, KIND)(&waiting, 0, ROWS);
}

/* The projection of all rows of one step: outputs, and the state of the next step. */
static void JOIN(project, KIND)(const struct layer *x, i64 d, i64 now, TYPE *outputs,
                                const struct JOIN(group, KIND) *group) {
  static const float no_bias[LANES];
  const OPERAND *weight_hr = x->weight_hr[d];
  for (i64 k = 0; k < x->size; k += COLUMNS) {
    JOIN(block, KIND)(group->sums, group->cell_outputs, weight_hr + k * x->cells * PARTS, no_bias, 0, now, x->cells,
                      NULL, NULL, 0);
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
  group.both = (OPERAND *)scratch, group.cell_outputs = group.both + group.all_rows * group.depth * PARTS;
  group.cell = (float *)(group.cell_outputs + group.all_rows * x->cells * PARTS);
  group.sums = group.cell + group.all_rows * x->cells;
  memset(scratch, 0, JOIN(scratch, KIND)(rows, x->input, x->size, x->cells));
  const TYPE *inputs = (const TYPE *)x->inputs[d] + first * x->input;
  TYPE *outputs = (TYPE *)x->outputs[d] + first * x->size;
  const float *hidden = x->hidden + (d * x->rows + first) * x->size;
  float *state = x->cell + (d * x->rows + first) * x->cells;
  for (i64 row = 0; row < rows; row++) {
    for (i64 k = 0; k < x->size; k += LANES)
      JOIN(put, KIND)(group.both, group.depth, row, x->input + k, load_f32(hidden + row * x->size + k));
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

void JOIN(layer, KIND)(const struct layer *x) {
  share_in_order(JOIN(one_group, KIND), x, x->directions * ((x->rows + x->group - 1) / x->group), x->threads);
}

#undef KIND
#undef TYPE
#undef OPERAND
#undef PARTS
#undef AT_ONCE
#undef EXACT
#undef PAIR
#undef ADD_PRODUCT
#undef PRODUCTS
