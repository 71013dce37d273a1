/* Sparse matrix times vector, rows in compressed form, columns drawn at random.
 *
 * usage: spmv [ROWS] [PER_ROW] [STEPS]
 *
 * A thread reads its own part of the matrix in order, and the whole vector at random.
 */
#include "kernels.h"

static void multiply(long rows, const int64_t *start, const int *column, const double *value,
                     const double *x, double *y) {
#pragma omp parallel for
    for (long i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t k = start[i]; k < start[i + 1]; k++) sum += value[k] * x[column[k]];
        y[i] = sum;
    }
}

int main(int argc, char **argv) {
    const long rows = argument(argc, argv, 1, 200000, 1), each = argument(argc, argv, 2, 16, 1);
    const long steps = argument(argc, argv, 3, 20, 1);
    int64_t *start = array(rows + 1, sizeof *start);
    int *column = array(rows * each, sizeof *column);
    double *value = array(rows * each, sizeof *value);
    double *x = array(rows, sizeof *x), *y = array(rows, sizeof *y);
    uint64_t draw = 88172645463325252u;
    for (long i = 0; i <= rows; i++) start[i] = i * each;
    for (long k = 0; k < rows * each; k++) {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        column[k] = draw % rows;
        value[k] = 1. / (1 + k % 11);
    }
#pragma omp parallel for
    for (long i = 0; i < rows; i++) x[i] = 1. + i % 5;
    const double begin = omp_get_wtime();
    for (long s = 0; s < steps; s++) multiply(rows, start, column, value, x, y);
    const double seconds = omp_get_wtime() - begin;
    double checksum = 0;
    for (long i = 0; i < rows; i++) checksum += y[i];
    report(checksum, seconds);
    return 0;
}
