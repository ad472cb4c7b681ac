/* TYPE is f32 or bf16, the type of weights, gates and outputs; sums, cells and the state are float32.
 *
 * The layout of weight_hh is [C / LANES][P][4 gates][LANES], that of weight_hr [P / (2 LANES)][C][2][LANES].
 */

/* The gates, next cells and outputs of LANES cells of one row. */
static void JOIN(gates_and_cells, TYPE)(const TYPE *gates, const TYPE *weights, const float *hidden, float *cell,
                                        float *cell_outputs, float before_clip, float cell_clip, i64 cells,
                                        i64 size) {
  float sum[4 * LANES];
  for (i64 k = 0; k < 4 * LANES; k++) sum[k] = JOIN(widen, TYPE)(gates[k / LANES * cells + k % LANES]);
  vector i[VECTORS], f[VECTORS], g[VECTORS], o[VECTORS];
  memcpy(i, sum, sizeof i), memcpy(f, sum + LANES, sizeof f);
  memcpy(g, sum + 2 * LANES, sizeof g), memcpy(o, sum + 3 * LANES, sizeof o);
  for (i64 p = 0; p < size; p++, weights += 4 * LANES)
    for (int v = 0; v < VECTORS; v++) {
      vector x, y, z, u;
      JOIN(pair, TYPE)(weights, v, &x, &y);
      JOIN(pair, TYPE)(weights + 2 * LANES, v, &z, &u);
      i[v] += x * hidden[p], f[v] += y * hidden[p], g[v] += z * hidden[p], o[v] += u * hidden[p];
    }
  memcpy(sum, i, sizeof i), memcpy(sum + LANES, f, sizeof f);
  memcpy(sum + 2 * LANES, g, sizeof g), memcpy(sum + 3 * LANES, o, sizeof o);
  forward_row_f32(sum, sum, cell, cell, cell_outputs, before_clip, cell_clip, LANES, 0);
}

/* 2 * LANES columns of the clipped projection of one row, written to the outputs and to the next step's state. */
static void JOIN(project, TYPE)(const TYPE *weights, const float *cell_outputs, TYPE *outputs, float *hidden,
                                float proj_clip, i64 cells) {
  vector x, y, even[2 * VECTORS], odd[2 * VECTORS];
  memset(even, 0, sizeof even), memset(odd, 0, sizeof odd);
  for (i64 k = 0; k < cells; k += 2, weights += 4 * LANES)
    for (int v = 0; v < VECTORS; v++) {
      JOIN(pair, TYPE)(weights, v, &x, &y);
      even[v] += x * cell_outputs[k], even[VECTORS + v] += y * cell_outputs[k];
      JOIN(pair, TYPE)(weights + 2 * LANES, v, &x, &y);
      odd[v] += x * cell_outputs[k + 1], odd[VECTORS + v] += y * cell_outputs[k + 1];
    }
  float projected[2 * LANES];
  for (int v = 0; v < 2 * VECTORS; v++) even[v] += odd[v];
  memcpy(projected, even, sizeof projected);
  for (i64 k = 0; k < 2 * LANES; k++) {
    outputs[k] = JOIN(narrow, TYPE)(clipped(projected[k], proj_clip));
    hidden[k] = JOIN(widen, TYPE)(outputs[k]);
  }
}

/* Computes one of `parts` parts of a direction, for all steps. The parts wait for each other twice in a step.
   Step t uses the first sizes[t] rows of hidden [rows][size] and of cell and cell_outputs [rows][cells]. */
static void JOIN(direction, TYPE)(const struct small_batch *x, i64 d, i64 part, i64 parts) {
  const TYPE *gates = x->gates[d], *weight_hh = x->weight_hh[d], *weight_hr = x->weight_hr[d];
  TYPE *outputs = x->outputs[d];
  i64 cells = x->cells, size = x->size;
  float *hidden = x->hidden + d * x->rows * size, *cell = x->cell + d * x->rows * cells;
  float *cell_outputs = x->cell_outputs + d * x->rows * cells, before_clip = x->before_clip;
  const struct range of_cells = share(cells / LANES, part, parts);
  const struct range of_outputs = share(weight_hr ? size / (2 * LANES) : 0, part, parts);
  const struct range copied = share(weight_hr ? 0 : size, part, parts);
  for (i64 t = 0; t < x->steps; t++, before_clip = x->cell_clip) {
    const i64 rows = x->sizes[t];
    for (i64 n = 0; n < of_cells.end - of_cells.begin; n++) {
      i64 k = (t % 2 ? of_cells.end - 1 - n : of_cells.begin + n) * LANES; /* weights read last are in the cache */
      for (i64 b = 0; b < rows; b++)
        JOIN(gates_and_cells, TYPE)(gates + b * 4 * cells + k, weight_hh + k * 4 * size, hidden + b * size,
                                    cell + b * cells + k, cell_outputs + b * cells + k, before_clip, x->cell_clip,
                                    cells, size);
    }
    if (parts > 1) openmp.barrier();
    for (i64 n = 0; n < of_outputs.end - of_outputs.begin; n++) {
      i64 p = (t % 2 ? of_outputs.end - 1 - n : of_outputs.begin + n) * 2 * LANES;
      for (i64 b = 0; b < rows; b++)
        JOIN(project, TYPE)(weight_hr + p * cells, cell_outputs + b * cells, outputs + b * size + p,
                            hidden + b * size + p, x->proj_clip, cells);
    }
    for (i64 b = 0; b < rows; b++)
      for (i64 k = copied.begin; k < copied.end; k++) {
        outputs[b * size + k] = JOIN(narrow, TYPE)(cell_outputs[b * size + k]);
        hidden[b * size + k] = JOIN(widen, TYPE)(outputs[b * size + k]);
      }
    if (parts > 1) openmp.barrier();
    gates += rows * 4 * cells, outputs += rows * size;
  }
}

static void JOIN(one_thread, TYPE)(const void *data, i64 thread, i64 threads) {
  const struct small_batch *x = data;
  const i64 parts = threads / x->directions;
  if (parts <= 1)
    for (i64 d = thread; d < x->directions; d += threads) JOIN(direction, TYPE)(x, d, 0, 1);
  else if (thread < parts * x->directions)
    JOIN(direction, TYPE)(x, thread / parts, thread % parts, parts);
  else
    for (i64 t = 0; t < 2 * x->steps; t++) openmp.barrier(); /* every thread takes part in a barrier */
}

void JOIN(small_batch, TYPE)(const struct small_batch *x) { together(JOIN(one_thread, TYPE), x, x->threads); }
