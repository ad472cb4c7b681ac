/* TYPE is f32 or bf16, the type of weights, gates and outputs; sums, cells and the state are float32.
 *
 * weight_hh lies as [C / LANES][P][4 gates][LANES], weight_hr as [P / (2 LANES)][C][2][LANES].
 */

/* Gates and next cells of LANES cells of one row. */
static void JOIN(gates_and_cells, TYPE)(const TYPE *gates, const TYPE *weights, const float *hidden, float *cell,
                                        float *cell_outputs, float before_clip, float cell_clip, long cells,
                                        long size) {
  float sum[4 * LANES];
  for (long k = 0; k < 4 * LANES; k++) sum[k] = JOIN(widen, TYPE)(gates[k / LANES * cells + k % LANES]);
  lanes i = ((lanes *)sum)[0], f = ((lanes *)sum)[1], g = ((lanes *)sum)[2], o = ((lanes *)sum)[3];
  for (long p = 0; p < size; p++, weights += 4 * LANES) {
    lanes x, y, z, u;
    JOIN(pair, TYPE)(weights, &x, &y);
    JOIN(pair, TYPE)(weights + 2 * LANES, &z, &u);
    i += x * hidden[p], f += y * hidden[p], g += z * hidden[p], o += u * hidden[p];
  }
  ((lanes *)sum)[0] = i, ((lanes *)sum)[1] = f, ((lanes *)sum)[2] = g, ((lanes *)sum)[3] = o;
  forward_row_f32(sum, sum, cell, cell, cell_outputs, before_clip, cell_clip, LANES, 0);
}

/* 2 * LANES columns of the projection of one row, clipped, as outputs and as the state of the next step. */
static void JOIN(project, TYPE)(const TYPE *weights, const float *cell_outputs, TYPE *outputs, float *hidden,
                                float proj_clip, long cells) {
  lanes x, y, low[2] = {{0}, {0}}, high[2] = {{0}, {0}};
  for (long k = 0; k < cells; k += 2, weights += 4 * LANES) {
    JOIN(pair, TYPE)(weights, &x, &y);
    low[0] += x * cell_outputs[k], high[0] += y * cell_outputs[k];
    JOIN(pair, TYPE)(weights + 2 * LANES, &x, &y);
    low[1] += x * cell_outputs[k + 1], high[1] += y * cell_outputs[k + 1];
  }
  lanes projected[2] = {low[0] + low[1], high[0] + high[1]};
  for (long k = 0; k < 2 * LANES; k++) {
    outputs[k] = JOIN(narrow, TYPE)(clipped(projected[k / LANES][k % LANES], proj_clip));
    hidden[k] = JOIN(widen, TYPE)(outputs[k]);
  }
}

/* Part `part` of `parts` of one direction's work, from its first step to its last; parts meet twice a step.
   hidden [rows][size], cell and cell_outputs [rows][cells]: the rows of step t are the first sizes[t] of them. */
static void JOIN(direction, TYPE)(const struct small_batch *x, long d, long part, long parts) {
  const TYPE *gates = x->gates[d], *weight_hh = x->weight_hh[d], *weight_hr = x->weight_hr[d];
  TYPE *outputs = x->outputs[d];
  long cells = x->cells, size = x->size;
  float *hidden = x->hidden + d * x->rows * size, *cell = x->cell + d * x->rows * cells;
  float *cell_outputs = x->cell_outputs + d * x->rows * cells, before_clip = x->before_clip;
  const struct range of_cells = share(cells / LANES, part, parts);
  const struct range of_outputs = share(weight_hr ? size / (2 * LANES) : 0, part, parts);
  const struct range copied = share(weight_hr ? 0 : size, part, parts);
  for (long t = 0; t < x->steps; t++, before_clip = x->cell_clip) {
    const long rows = x->sizes[t];
    for (long n = 0; n < of_cells.end - of_cells.begin; n++) {
      long k = (t % 2 ? of_cells.end - 1 - n : of_cells.begin + n) * LANES; /* what was read last is in the cache */
      for (long b = 0; b < rows; b++)
        JOIN(gates_and_cells, TYPE)(gates + b * 4 * cells + k, weight_hh + k * 4 * size, hidden + b * size,
                                    cell + b * cells + k, cell_outputs + b * cells + k, before_clip, x->cell_clip,
                                    cells, size);
    }
    barrier(parts);
    for (long n = 0; n < of_outputs.end - of_outputs.begin; n++) {
      long p = (t % 2 ? of_outputs.end - 1 - n : of_outputs.begin + n) * 2 * LANES;
      for (long b = 0; b < rows; b++)
        JOIN(project, TYPE)(weight_hr + p * cells, cell_outputs + b * cells, outputs + b * size + p,
                            hidden + b * size + p, x->proj_clip, cells);
    }
    for (long b = 0; b < rows; b++)
      for (long k = copied.begin; k < copied.end; k++) {
        outputs[b * size + k] = JOIN(narrow, TYPE)(cell_outputs[b * size + k]);
        hidden[b * size + k] = JOIN(widen, TYPE)(outputs[b * size + k]);
      }
    barrier(parts);
    gates += rows * 4 * cells, outputs += rows * size;
  }
}

void JOIN(small_batch, TYPE)(const struct small_batch *x) {
#pragma omp parallel num_threads(x->threads)
  {
    const long threads = omp_get_num_threads(), number = omp_get_thread_num(), parts = threads / x->directions;
    if (parts <= 1)
      for (long d = number; d < x->directions; d += threads) JOIN(direction, TYPE)(x, d, 0, 1);
    else if (number < parts * x->directions)
      JOIN(direction, TYPE)(x, number / parts, number % parts, parts);
    else
      for (long t = 0; t < 2 * x->steps; t++) barrier(parts); /* every thread takes part in a barrier */
  }
}
