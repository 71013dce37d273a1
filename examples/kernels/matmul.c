/* Matrix product C = A B, rows of A over the threads, each sum in a register.
 *
 * usage: matmul [N] [row|column]
 *
 * B stored by rows is walked with a stride of N elements, B stored by columns with a stride of
 * one. A thread reads its own rows of A and all of B.
 */
#include "kernels.h"
#include <string.h>

static void by_rows(long n, const double *a, const double *b, double *c) {
#pragma omp parallel for
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double sum = 0;
            for (long l = 0; l < n; l++) sum += a[i * n + l] * b[l * n + j];
            c[i * n + j] = sum;
        }
}

static void by_columns(long n, const double *a, const double *b, double *c) {
#pragma omp parallel for
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double sum = 0;
            for (long l = 0; l < n; l++) sum += a[i * n + l] * b[j * n + l];
            c[i * n + j] = sum;
        }
}

int main(int argc, char **argv) {
    const long n = argument(argc, argv, 1, 800, 1);
    const char *storage = argc > 2 ? argv[2] : "row";
    if (strcmp(storage, "row") && strcmp(storage, "column")) {
        fprintf(stderr, "usage: matmul [N] [row|column]\n");
        return 2;
    }
    double *a = array(n * n, sizeof *a), *b = array(n * n, sizeof *b), *c = array(n * n, sizeof *c);
#pragma omp parallel for
    for (long i = 0; i < n * n; i++) {
        a[i] = i % 17;
        b[i] = i % 13;
        c[i] = 0;
    }
    const double begin = omp_get_wtime();
    (strcmp(storage, "row") ? by_columns : by_rows)(n, a, b, c);
    const double seconds = omp_get_wtime() - begin;
    double checksum = 0;
    for (long i = 0; i < n * n; i++) checksum += c[i] * (i % 7);
    report(checksum, seconds);
    return 0;
}
