/* Sparse matrix of dense 4 x 4 blocks times vector, columns of blocks drawn at random.
 *
 * usage: blocks [BLOCK_ROWS] [PER_ROW] [STEPS]
 *
 * A thread reads its own blocks in order, and four neighbours of the vector at random for each.
 */
#include "kernels.h"

enum { SIZE = 4 };

static void multiply(long rows, long each, const int *column, const double *value, const double *x,
                     double *y) {
#pragma omp parallel for
    for (long i = 0; i < rows; i++) {
        double sum[SIZE] = {0};
        for (long k = i * each; k < (i + 1) * each; k++) {
            const double *block = value + k * SIZE * SIZE, *part = x + (long)column[k] * SIZE;
            for (int r = 0; r < SIZE; r++)
                for (int c = 0; c < SIZE; c++) sum[r] += block[r * SIZE + c] * part[c];
        }
        for (int r = 0; r < SIZE; r++) y[i * SIZE + r] = sum[r];
    }
}

int main(int argc, char **argv) {
    const long rows = argument(argc, argv, 1, 50000, 1), each = argument(argc, argv, 2, 8, 1);
    const long steps = argument(argc, argv, 3, 20, 1);
    int *column = array(rows * each, sizeof *column);
    double *value = array(rows * each * SIZE * SIZE, sizeof *value);
    double *x = array(rows * SIZE, sizeof *x), *y = array(rows * SIZE, sizeof *y);
    uint64_t draw = 88172645463325252u;
    for (long k = 0; k < rows * each; k++) {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        column[k] = draw % rows;
    }
#pragma omp parallel for
    for (long k = 0; k < rows * each * SIZE * SIZE; k++) value[k] = 1. / (1 + k % 11);
#pragma omp parallel for
    for (long i = 0; i < rows * SIZE; i++) x[i] = 1. + i % 5;
    const double begin = omp_get_wtime();
    for (long s = 0; s < steps; s++) multiply(rows, each, column, value, x, y);
    const double seconds = omp_get_wtime() - begin;
    double checksum = 0;
    for (long i = 0; i < rows * SIZE; i++) checksum += y[i];
    report(checksum, seconds);
    return 0;
}
