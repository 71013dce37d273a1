/* Arithmetic without memory: what the cores can do at most, and when each step waits for the last.
 *
 * Compiled for the very processor it runs on, with fast mathematics, as the peak asks for.
 */
#include "walks.h"

#include <math.h>
#include <stddef.h>

/* as many as keep two pipelines busy over their latency, and still fit the registers */
#ifdef __AVX512F__
#define LANES 96
#else
#define LANES 40
#endif

static volatile double one = 1;

/* Independent multiply-adds, enough of them to fill every pipeline and SIMD lane. */
static double fma_peak(long n) {
    double lane[LANES];
    const double factor = one, more = one;
    for (int k = 0; k < LANES; k++) lane[k] = 0;
    for (long i = 0; i < n; i++) {
#pragma omp simd
        for (int k = 0; k < LANES; k++) lane[k] = lane[k] * factor + more;
    }
    double sum = 0;
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum / LANES;
}

/* Each multiply-add waits for the one before. */
static double fma_chain(long n) {
    double x = 0;
    const double factor = one, more = one;
    for (long i = 0; i < n; i++) x = x * factor + more;
    return x;
}

/* A division and a square root that wait for nothing. */
static double roots(long n) {
    double sum = 0;
    const double start = one;
    for (long i = 0; i < n; i++) {
        double x = start;
        __asm__ volatile("" : "+x"(x));
        sum += 1 / (x * sqrt(x));
    }
    return sum;
}

const struct peak peaks[] = {
    {"fma", LANES, fma_peak},
    {"chain", 1, fma_chain},
    {"root", 1, roots},
    {NULL, 0, NULL},
};
