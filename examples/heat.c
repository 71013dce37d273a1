/* Implicit heat equation in one dimension: the advisor's demo application.
 *
 * Every time step solves a tridiagonal system. The Thomas algorithm's two sweeps depend on their
 * own last value, so they run on one core; building the right-hand side and the residual run on
 * all. Like many real codes it gains little from more cores, and they all cost energy.
 *
 * usage: heat [CELLS] [STEPS]      prints the residual, which must be close to zero
 */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const long n = argc > 1 ? atol(argv[1]) : 1000000;
    const int steps = argc > 2 ? atoi(argv[2]) : 60;
    if (n < 3 || steps < 1) {
        fprintf(stderr, "usage: heat [CELLS >= 3] [STEPS >= 1]\n");
        return 2;
    }
    double *u = malloc(n * sizeof *u), *d = malloc(n * sizeof *d), *c = malloc(n * sizeof *c);
    if (!u || !d || !c) {
        fprintf(stderr, "heat: no memory for %ld cells\n", n);
        return 1;
    }
    const double r = 0.4;
    double residual = 0.0;
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; i++) u[i] = sin(3.14159265358979 * i / (n - 1));
    for (int step = 0; step < steps; step++) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) d[i] = u[i];
        c[0] = 0.0;
        for (long i = 1; i < n - 1; i++) { /* forward: each value needs the one before */
            const double m = 1.0 / (1.0 + 2.0 * r + r * c[i - 1]);
            c[i] = -r * m;
            d[i] = (d[i] + r * d[i - 1]) * m;
        }
        for (long i = n - 2; i > 0; i--) d[i] -= c[i] * d[i + 1]; /* backward: the one after */
        residual = 0.0;
#pragma omp parallel for schedule(static) reduction(max : residual)
        for (long i = 1; i < n - 1; i++) {
            const double e = fabs((1.0 + 2.0 * r) * d[i] - r * (d[i - 1] + d[i + 1]) - u[i]);
            if (e > residual) residual = e;
        }
        double *swap = u;
        u = d;
        d = swap;
    }
    printf("heat: %ld cells, %d steps, %d threads, residual %.1e\n", n, steps,
           omp_get_max_threads(), residual);
    return residual < 1e-9 ? 0 : 1;
}
