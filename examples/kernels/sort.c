/* Merge sort of 8-byte keys: every thread sorts its part, then parts are merged two by two.
 *
 * usage: sort [KEYS] [STEPS]
 *
 * The merges read two streams and write one, over runs that double in length; the last ones have
 * fewer threads than cores.
 */
#include "kernels.h"

static void merge(const uint64_t *from, uint64_t *to, long low, long middle, long high) {
    long a = low, b = middle;
    for (long i = low; i < high; i++) {
        const int left = a < middle && (b >= high || from[a] <= from[b]);
        to[i] = left ? from[a++] : from[b++];
    }
}

/* Sorts from [low, high) and returns where the result lies. */
static uint64_t *sorted(uint64_t *from, uint64_t *to, long low, long high) {
    for (long width = 1; width < high - low; width *= 2) {
        for (long at = low; at < high; at += 2 * width) {
            const long middle = at + width < high ? at + width : high;
            merge(from, to, at, middle, at + 2 * width < high ? at + 2 * width : high);
        }
        uint64_t *other = from;
        from = to;
        to = other;
    }
    return from;
}

int main(int argc, char **argv) {
    const long count = argument(argc, argv, 1, 4000000, 2), steps = argument(argc, argv, 2, 1, 1);
    long parts = 1;
    while (2 * parts <= omp_get_max_threads()) parts *= 2;
    uint64_t *keys = array(count, sizeof *keys), *spare = array(count, sizeof *spare);
    double seconds = 0, checksum = 0;
    for (long s = 0; s < steps; s++) {
        uint64_t draw = 88172645463325252u + s;
        for (long i = 0; i < count; i++) {
            draw ^= draw << 13;
            draw ^= draw >> 7;
            draw ^= draw << 17;
            keys[i] = draw;
        }
        const double begin = omp_get_wtime();
        uint64_t *now = keys, *next = spare;
#pragma omp parallel for schedule(static, 1)
        for (long p = 0; p < parts; p++) {
            const long low = count * p / parts, high = count * (p + 1) / parts;
            const uint64_t *place = sorted(keys, spare, low, high);
            for (long i = low; i < high && place != keys; i++) keys[i] = place[i];
        }
        for (long width = 1; width < parts; width *= 2) {
#pragma omp parallel for schedule(static, 1)
            for (long p = 0; p < parts; p += 2 * width) {
                const long low = count * p / parts, middle = count * (p + width) / parts;
                merge(now, next, low, middle, count * (p + 2 * width) / parts);
            }
            uint64_t *other = now;
            now = next;
            next = other;
        }
        seconds += omp_get_wtime() - begin;
        for (long i = 1; i < count; i++) {
            if (now[i - 1] > now[i]) {
                fprintf(stderr, "%s: not sorted at %ld\n", argv[0], i);
                return 1;
            }
        }
        checksum += (double)(now[count / 2] >> 12);
    }
    report(checksum, seconds);
    return 0;
}
