/* sums [rows][COLUMNS] = bias + x [rows][depth] * weights [depth][4][LANES], for up to six rows. layer.c defines NAME, the
 * types OPERAND and WEIGHT, PAIR, and ADD_PRODUCT, which adds the products of PAIR numbers of x and PAIR rows of weights.
 *
 * Number k of row r of x is x[r * row_step + k / DEPTH * block_step + k % DEPTH]. If bias is NULL, the products are added
 * to sums. As many of the four gates are computed at once as the registers hold sums of. Of each DEPTH rows of the weights
 * from `ahead` on, cache lines `line` to `end` are prefetched.
 */
INLINE void JOIN(some_rows, NAME)(float *sums, const OPERAND *x, i64 row_step, i64 block_step, const WEIGHT *weights,
                                  const float *bias, i64 bias_step, i64 depth, const int rows, const WEIGHT *ahead,
                                  i64 line, i64 end) {
  const int gates = VECTOR == 16 || rows == 1 ? 4 : rows == 2 ? 2 : 1;
  for (int g = 0; g < 4; g += gates) {
    vector sum[6][4 * VECTORS];
    for (int r = 0; r < rows; r++)
      for (int v = 0; v < gates * VECTORS; v++)
        sum[r][v] = *(const vector *)((bias ? bias + (g + v / VECTORS) * bias_step : sums + r * COLUMNS + g * LANES) +
                                      (bias ? v % VECTORS : v) * VECTOR);
    const WEIGHT *row = weights + g * LANES * PAIR;
    for (i64 block = 0; block < depth / DEPTH; block++)
      for (i64 k = 0; k < DEPTH; k += PAIR, row += PAIR * COLUMNS) {
        i64 next = line + (g / gates * DEPTH + k) / PAIR;
        if (next < end) fetch(ahead + block * DEPTH * COLUMNS, next, next + 1);
        for (int r = 0; r < rows; r++)
          for (int v = 0; v < gates * VECTORS; v++)
            ADD_PRODUCT(sum[r][v], x + r * row_step + block * block_step + k, row + v * VECTOR * PAIR);
      }
    for (int r = 0; r < rows; r++) memcpy(sums + r * COLUMNS + g * LANES, sum[r], 4 * gates * LANES);
  }
}

#define SOME_ROWS(COUNT) \
  JOIN(some_rows, NAME)(sums + r * COLUMNS, x + r * row_step, row_step, DEPTH, block, k ? NULL : bias, bias_step, count, \
                        COUNT, block + count * COLUMNS, 0, r || k + count == depth ? 0 : lines)
/* The same for any number of rows of x [rows][row_step], AT_ONCE * DEPTH rows of weights at a time. */
static inline void JOIN(all_rows, NAME)(float *sums, const OPERAND *x, i64 row_step, const WEIGHT *weights, const float *bias,
                                 i64 bias_step, i64 depth, i64 rows) {
  const i64 most = rows == 1 ? depth : 2 * DEPTH, lines = COLUMNS * DEPTH * (i64)sizeof(WEIGHT) / 64;
  for (i64 k = 0, count; k < depth; k += count, x += count) {
    const WEIGHT *block = weights + k * COLUMNS;
    count = depth - k < most ? depth - k : most;
    for (i64 r = 0, now; r < rows; r += now) {
      now = rows - r < 6 ? rows - r : rows - r == 7 || rows - r == 8 ? 4 : 6;
      switch (now) {
      case 1: SOME_ROWS(1); break;
      case 2: SOME_ROWS(2); break;
      case 3: SOME_ROWS(3); break;
      case 4: SOME_ROWS(4); break;
      case 5: SOME_ROWS(5); break;
      default: SOME_ROWS(6);
      }
    }
  }
}

#undef SOME_ROWS
#undef NAME
#undef OPERAND
#undef WEIGHT
#undef PAIR
#undef ADD_PRODUCT
