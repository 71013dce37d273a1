/* What the kernels share: reading their arguments and reporting.
 *
 * Every kernel takes its parameters as arguments, works on all OpenMP threads, and prints its
 * checksum (so that nothing can be optimised away) and the seconds of its main loop.
 */
#ifndef KERNELS_H
#define KERNELS_H
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static long argument(int argc, char **argv, int at, long otherwise, long least) {
    const long value = argc > at ? atol(argv[at]) : otherwise;
    if (value < least) {
        fprintf(stderr, "%s: argument %d must be at least %ld\n", argv[0], at, least);
        exit(2);
    }
    return value;
}

static void *array(size_t count, size_t size) {
    void *memory = aligned_alloc(64, (count * size + 63) / 64 * 64);
    if (memory == NULL) {
        fprintf(stderr, "no memory for %zu elements of %zu bytes\n", count, size);
        exit(1);
    }
    return memory;
}

static void report(double checksum, double seconds) {
    printf("checksum %.10g\nseconds %.6f\n", checksum, seconds);
}
#endif
