/* Triad a = b + s c over three long arrays.
 *
 * usage: triad [ELEMENTS] [REPEATS]
 */
#include "kernels.h"

static void triad(long n, double *a, const double *b, const double *c, double s) {
#pragma omp parallel for
    for (long i = 0; i < n; i++) a[i] = b[i] + s * c[i];
}

int main(int argc, char **argv) {
    const long n = argument(argc, argv, 1, 4000000, 1), repeats = argument(argc, argv, 2, 40, 1);
    double *a = array(n, sizeof *a), *b = array(n, sizeof *b), *c = array(n, sizeof *c);
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        a[i] = 0;
        b[i] = i % 5;
        c[i] = i % 3;
    }
    const double begin = omp_get_wtime();
    for (long r = 0; r < repeats; r++) triad(n, a, b, c, 1. + r % 4);
    const double seconds = omp_get_wtime() - begin;
    double checksum = 0;
    for (long i = 0; i < n; i++) checksum += a[i];
    report(checksum, seconds);
    return 0;
}
