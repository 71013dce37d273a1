/* Five-point stencil on a square grid, two arrays that change roles every step.
 *
 * usage: stencil [N] [STEPS]
 *
 * A thread reads and writes its own rows, and reads one row of each neighbour.
 */
#include "kernels.h"

static void step(long n, const double *u, double *v) {
#pragma omp parallel for
    for (long i = 1; i < n - 1; i++)
        for (long j = 1; j < n - 1; j++)
            v[i * n + j] = 0.5 * u[i * n + j] + 0.125 * (u[(i - 1) * n + j] + u[(i + 1) * n + j] +
                                                         u[i * n + j - 1] + u[i * n + j + 1]);
}

int main(int argc, char **argv) {
    const long n = argument(argc, argv, 1, 2000, 3), steps = argument(argc, argv, 2, 20, 1);
    double *u = array(n * n, sizeof *u), *v = array(n * n, sizeof *v);
#pragma omp parallel for
    for (long i = 0; i < n * n; i++) u[i] = v[i] = i % 101;
    const double begin = omp_get_wtime();
    for (long s = 0; s < steps; s++) {
        step(n, u, v);
        double *const other = u;
        u = v;
        v = other;
    }
    const double seconds = omp_get_wtime() - begin;
    double checksum = 0;
    for (long i = 0; i < n * n; i++) checksum += u[i] * (i % 3);
    report(checksum, seconds);
    return 0;
}
