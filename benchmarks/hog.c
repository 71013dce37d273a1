/* A memory hog that takes its share in pieces far shorter than a parallel region: each thread
 * streams through its own arrays for about 0.3 ms, then sleeps as long.
 */
#include <stdlib.h>
#include <time.h>

int main(void) {
    const long n = 1L << 22, piece = 1L << 16;
    const struct timespec pause = {0, 300000};
#pragma omp parallel
    {
        double *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
        for (long i = 0; i < n; i++) a[i] = b[i] = (double)i;
        for (long at = 0;; at = (at + piece) % n) {
            for (long i = at; i < at + piece; i++) a[i] += 3. * b[i];
            nanosleep(&pause, NULL);
        }
    }
}
