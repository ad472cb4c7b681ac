/* The LSTM cell of one row, and its loops over rows; TYPE is f32 or bf16, the type of the matrix products.
 *
 * Gates are [4 * size] in the order i, f, g, o, before activation. A division takes as long as ten other operations, so
 * several quotients share one. `..._d` is the distance from one direction to the next; rows follow one another.
 */

INLINE void JOIN(forward_row, TYPE)(TYPE *gates, const TYPE *recurrent, const float *before, float *cells, TYPE *hidden,
                                    float before_clip, float cell_clip, long size, int add) {
#pragma omp simd
  for (long k = 0; k < size; k++) {
    float i = JOIN(widen, TYPE)(gates[k]), f = JOIN(widen, TYPE)(gates[k + size]);
    float g = JOIN(widen, TYPE)(gates[k + 2 * size]), o = JOIN(widen, TYPE)(gates[k + 3 * size]);
    if (add) {
      i += JOIN(widen, TYPE)(recurrent[k]);
      f += JOIN(widen, TYPE)(recurrent[k + size]);
      g += JOIN(widen, TYPE)(recurrent[k + 2 * size]);
      o += JOIN(widen, TYPE)(recurrent[k + 3 * size]);
      gates[k] = JOIN(narrow, TYPE)(i);
      gates[k + size] = JOIN(narrow, TYPE)(f);
      gates[k + 2 * size] = JOIN(narrow, TYPE)(g);
      gates[k + 3 * size] = JOIN(narrow, TYPE)(o);
    }
    g = tanh_limited(g);
    float den_f = sigmoid_denominator(f), den_ig = sigmoid_denominator(i) * tanh_denominator(g);
    float c = (clipped(before[k], before_clip) * den_ig + tanh_numerator(g) * den_f) / (den_f * den_ig);
    cells[k] = c;
    float t = tanh_limited(clipped(c, cell_clip));
    hidden[k] = JOIN(narrow, TYPE)(tanh_numerator(t) / (sigmoid_denominator(o) * tanh_denominator(t)));
  }
}

#ifndef ROWS_ONLY

/* `add`: the gates are the sum of `gates` and `recurrent`, and are written back. */
INLINE void JOIN(forward_rows, TYPE)(TYPE *gates, long gates_d, const TYPE *recurrent, long recurrent_d,
                                     const float *before, long before_d, float *cells, long cells_d, TYPE *hidden,
                                     long hidden_d, float before_clip, float cell_clip, long directions, long rows,
                                     long size, int threads, int add) {
  (void)threads; /* without OpenMP */
#pragma omp parallel for num_threads(threads)
  for (long n = 0; n < directions * rows; n++) {
    long d = n / rows, row = n % rows * size;
    JOIN(forward_row, TYPE)(gates + d * gates_d + 4 * row, recurrent + d * recurrent_d + 4 * row,
                            before + d * before_d + row, cells + d * cells_d + row, hidden + d * hidden_d + row,
                            before_clip, cell_clip, size, add);
  }
}

void JOIN(cell_forward, TYPE)(TYPE *gates, long gates_d, const TYPE *recurrent, long recurrent_d, const float *before,
                              long before_d, float *cells, long cells_d, TYPE *hidden, long hidden_d,
                              float before_clip, float cell_clip, long directions, long rows, long size, int threads) {
  JOIN(forward_rows, TYPE)(gates, gates_d, recurrent, recurrent_d, before, before_d, cells, cells_d, hidden, hidden_d,
                           before_clip, cell_clip, directions, rows, size, threads, 1);
}

void JOIN(cell_infer, TYPE)(TYPE *gates, long gates_d, const TYPE *recurrent, long recurrent_d, const float *before,
                            long before_d, float *cells, long cells_d, TYPE *hidden, long hidden_d, float before_clip,
                            float cell_clip, long directions, long rows, long size, int threads) {
  JOIN(forward_rows, TYPE)(gates, gates_d, recurrent, recurrent_d, before, before_d, cells, cells_d, hidden, hidden_d,
                           before_clip, cell_clip, directions, rows, size, threads, 0);
}

INLINE void JOIN(backward_row, TYPE)(const TYPE *gate, const float *previous, const float *cell, const TYPE *grad_h,
                                     float *grad_c, TYPE *grad_gate, float before_clip, float cell_clip, long size) {
#pragma omp simd
  for (long k = 0; k < size; k++) {
    float c = cell[k], from_h = JOIN(widen, TYPE)(grad_h[k]);
    float t = tanh_limited(clipped(c, cell_clip)), g = tanh_limited(JOIN(widen, TYPE)(gate[k + 2 * size]));
    float den_t = tanh_denominator(t), den_g = tanh_denominator(g), tanhs = 1.f / (den_t * den_g);
    t = tanh_numerator(t) * den_g * tanhs;
    g = tanh_numerator(g) * den_t * tanhs;
    float den_i = sigmoid_denominator(JOIN(widen, TYPE)(gate[k]));
    float den_f = sigmoid_denominator(JOIN(widen, TYPE)(gate[k + size]));
    float den_o = sigmoid_denominator(JOIN(widen, TYPE)(gate[k + 3 * size]));
    float sigmoids = 1.f / (den_i * den_f * den_o);
    float i = den_f * den_o * sigmoids, f = den_i * den_o * sigmoids, o = den_i * den_f * sigmoids;
    float grad = grad_c[k] + from_h * o * (1.f - t * t);
    grad = fabsf(c) > cell_clip ? 0.f : grad;
    grad_gate[k] = JOIN(narrow, TYPE)(grad * g * i * (1.f - i));
    grad_gate[k + size] = JOIN(narrow, TYPE)(grad * clipped(previous[k], before_clip) * f * (1.f - f));
    grad_gate[k + 2 * size] = JOIN(narrow, TYPE)(grad * i * (1.f - g * g));
    grad_gate[k + 3 * size] = JOIN(narrow, TYPE)(from_h * t * o * (1.f - o));
    grad_c[k] = grad * f;
  }
}

void JOIN(cell_backward, TYPE)(const TYPE *gates, long gates_d, const float *before, long before_d, const float *cells,
                               long cells_d, const TYPE *grad_hidden, long grad_hidden_d, float *grad_cell,
                               long grad_cell_d, TYPE *grad_gates, long grad_gates_d, float before_clip,
                               float cell_clip, long directions, long rows, long size, int threads) {
  (void)threads;
#pragma omp parallel for num_threads(threads)
  for (long n = 0; n < directions * rows; n++) {
    long d = n / rows, row = n % rows * size;
    JOIN(backward_row, TYPE)(gates + d * gates_d + 4 * row, before + d * before_d + row, cells + d * cells_d + row,
                             grad_hidden + d * grad_hidden_d + row, grad_cell + d * grad_cell_d + row,
                             grad_gates + d * grad_gates_d + 4 * row, before_clip, cell_clip, size);
  }
}

#endif
