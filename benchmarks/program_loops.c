/* SPDX-License-Identifier: Apache-2.0 */
// program_loops.c -- two schedules of relu(A B), 128 x 128 in f32, as C written by hand: what benchmarks/programs.py compares the
// code of the same schedules with. Vectors are the GNU extensions'.
#define N 128

typedef float eight __attribute__((vector_size(32)));
typedef float sixteen __attribute__((vector_size(64)));
typedef eight eight_anywhere __attribute__((aligned(4), may_alias));
typedef sixteen sixteen_anywhere __attribute__((aligned(4), may_alias));

typedef int eight_bits __attribute__((vector_size(32)));
typedef int sixteen_bits __attribute__((vector_size(64)));

#define EIGHT(p) (*(eight_anywhere*)(p))
#define SIXTEEN(p) (*(sixteen_anywhere*)(p))

// The tutorial's loops: eight columns of a row at a time.
void walk(const float* a, const float* b, float* c) {
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j < N; j += 8) {
      eight sum = {0};
      for (int k = 0; k < N; ++k) sum += a[i * N + k] * EIGHT(b + k * N + j);
      EIGHT(c + i * N + j) = (eight)((eight_bits)sum & (sum > 0));
    }
  }
}

// Four rows by two vectors of sixteen columns, in registers.
void register_tile(const float* a, const float* b, float* c) {
  for (int i = 0; i < N; i += 4) {
    for (int j = 0; j < N; j += 32) {
      sixteen left[4], right[4];
      for (int r = 0; r < 4; ++r) left[r] = right[r] = (sixteen){0};
      for (int k = 0; k < N; ++k) {
        const sixteen first = SIXTEEN(b + k * N + j), second = SIXTEEN(b + k * N + j + 16);
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
          left[r] += a[(i + r) * N + k] * first;
          right[r] += a[(i + r) * N + k] * second;
        }
      }
      for (int r = 0; r < 4; ++r) {
        SIXTEEN(c + (i + r) * N + j) = (sixteen)((sixteen_bits)left[r] & (left[r] > 0));
        SIXTEEN(c + (i + r) * N + j + 16) = (sixteen)((sixteen_bits)right[r] & (right[r] > 0));
      }
    }
  }
}
