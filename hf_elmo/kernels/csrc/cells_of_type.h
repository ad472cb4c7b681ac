/* The LSTM cell of one row, and the loops over rows; TYPE is f32 or bf16, the type of the matrix products.
 *
 * Gates are [4 * size] in the order i, f, g, o, before activation. A division takes as long as ten other operations, so
 * several quotients share one division. */
static void JOIN(forward, TYPE)(const void *data, i64 row, i64 thread) {
  const struct cell *x = data;
  const i64 size = x->size;
  const TYPE *gates = (const TYPE *)x->gates + 4 * row * size;
  const float *before = x->before + row * size, before_clip = x->before_clip, cell_clip = x->cell_clip;
  float *cells = x->cells + row * size;
  TYPE *hidden = (TYPE *)x->hidden + row * size;
  (void)thread;
#pragma omp simd
  for (i64 k = 0; k < size; k++) {
    float i = JOIN(widen, TYPE)(gates[k]), f = JOIN(widen, TYPE)(gates[k + size]);
    float g = JOIN(widen, TYPE)(gates[k + 2 * size]), o = JOIN(widen, TYPE)(gates[k + 3 * size]);
    g = tanh_limited(g);
    float den_f = sigmoid_denominator(f), den_ig = sigmoid_denominator(i) * tanh_denominator(g);
    float c = (clipped(before[k], before_clip) * den_ig + tanh_numerator(g) * den_f) / (den_f * den_ig);
    cells[k] = c;
    float t = tanh_limited(clipped(c, cell_clip));
    hidden[k] = JOIN(narrow, TYPE)(tanh_numerator(t) / (sigmoid_denominator(o) * tanh_denominator(t)));
  }
}

static void JOIN(backward, TYPE)(const void *data, i64 row, i64 thread) {
  const struct cell *x = data;
  const i64 size = x->size;
  const TYPE *gate = (const TYPE *)x->gates + 4 * row * size, *grad_h = (const TYPE *)x->hidden + row * size;
  const float *previous = x->before + row * size, *cell = x->cells + row * size;
  const float before_clip = x->before_clip, cell_clip = x->cell_clip;
  float *grad_c = x->grad_cell + row * size;
  TYPE *grad_gate = (TYPE *)x->grad_gates + 4 * row * size;
  (void)thread;
#pragma omp simd
  for (i64 k = 0; k < size; k++) {
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

void JOIN(cell_forward, TYPE)(const struct cell *x) { share_out(JOIN(forward, TYPE), x, x->rows, x->threads); }
void JOIN(cell_backward, TYPE)(const struct cell *x) { share_out(JOIN(backward, TYPE), x, x->rows, x->threads); }
