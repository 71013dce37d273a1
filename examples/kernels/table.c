/* Look-ups at random in one large table that all threads share.
 *
 * usage: table [ELEMENTS] [LOOKUPS PER THREAD]
 *
 * Every address follows from a register, none from the look-up before it.
 */
#include "kernels.h"

static uint64_t look_up(const uint64_t *table, uint64_t elements, long lookups) {
    uint64_t total = 0;
#pragma omp parallel reduction(+ : total)
    {
        uint64_t draw = 88172645463325252u + 7919u * omp_get_thread_num();
        for (long k = 0; k < lookups; k++) {
            draw ^= draw << 13;
            draw ^= draw >> 7;
            draw ^= draw << 17;
            total += table[(uint64_t)((unsigned __int128)draw * elements >> 64)];
        }
    }
    return total;
}

int main(int argc, char **argv) {
    const long elements = argument(argc, argv, 1, 8000000, 1);
    const long lookups = argument(argc, argv, 2, 10000000, 1);
    uint64_t *table = array(elements, sizeof *table);
#pragma omp parallel for
    for (long i = 0; i < elements; i++) table[i] = i * 2654435761u % 1000;
    const double begin = omp_get_wtime();
    const uint64_t total = look_up(table, elements, lookups);
    report(total, omp_get_wtime() - begin);
    return 0;
}
