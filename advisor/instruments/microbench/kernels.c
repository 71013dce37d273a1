/* The loops of the memory microbenchmarks, one set for each type of element.
 *
 * They are compiled as applications are (-O2, no fast mathematics), and apart from the program
 * that times them, so that nothing is known here of what the zones hold. Small integers are added
 * up in an int, as in C everywhere.
 */
#include "walks.h"

#include <stddef.h>

#define KERNELS(T, SUM)                                                                            \
    /* independent reads: as fast as the caches and the memory give them */                        \
    static double load_##T(struct walk *w, long n) {                                               \
        const long step = w[0].step;                                                               \
        const T *p = (const T *)w[0].zone + w[0].offset + w[0].index * step;                       \
        SUM s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;                        \
        long i = 0;                                                                                \
        for (; i + 8 <= n; i += 8, p += 8 * step) {                                                \
            s0 += p[0];                                                                            \
            s1 += p[step];                                                                         \
            s2 += p[2 * step];                                                                     \
            s3 += p[3 * step];                                                                     \
            s4 += p[4 * step];                                                                     \
            s5 += p[5 * step];                                                                     \
            s6 += p[6 * step];                                                                     \
            s7 += p[7 * step];                                                                     \
        }                                                                                          \
        for (; i < n; i++, p += step) s0 += *p;                                                    \
        return (double)((s0 + s1) + (s2 + s3)) + (double)((s4 + s5) + (s6 + s7));                  \
    }                                                                                              \
    /* one sum, each addition waits for the one before */                                          \
    static double add_##T(struct walk *w, long n) {                                                \
        const long step = w[0].step;                                                               \
        const T *p = (const T *)w[0].zone + w[0].offset + w[0].index * step;                       \
        SUM sum = 0;                                                                               \
        for (long i = 0; i < n; i++, p += step) sum += *p;                                         \
        return sum;                                                                                \
    }                                                                                              \
    static double muladd_##T(struct walk *w, long n) {                                             \
        const long step = w[0].step;                                                               \
        const T *p = (const T *)w[0].zone + w[0].offset + w[0].index * step;                       \
        SUM sum = 0;                                                                               \
        for (long i = 0; i < n; i++, p += step) sum += *p * *p;                                    \
        return sum;                                                                                \
    }                                                                                              \
    /* all elements of a record as long as the step, in one iteration */                           \
    static double record_##T(struct walk *w, long n) {                                             \
        const long step = w[0].step;                                                               \
        const T *p = (const T *)w[0].zone + w[0].index * step;                                     \
        double sum = 0;                                                                            \
        for (long i = 0; i < n; i++, p += step) {                                                  \
            SUM part = 0;                                                                          \
            for (long k = 0; k < step; k++) part = part * p[k] + p[k];                             \
            sum += part;                                                                           \
        }                                                                                          \
        return sum;                                                                                \
    }                                                                                              \
    static double random_##T(struct walk *w, long n) {                                             \
        const T *zone = w[0].zone;                                                                 \
        const long elements = w[0].elements;                                                       \
        uint64_t draw = w[0].draw;                                                                 \
        SUM sum = 0;                                                                               \
        for (long i = 0; i < n; i++) {                                                             \
            draw = next_draw(draw);                                                                \
            sum += zone[drawn(draw, elements)];                                                    \
        }                                                                                          \
        w[0].draw = draw;                                                                          \
        return sum;                                                                                \
    }                                                                                              \
    static double write_##T(struct walk *w, long n) {                                              \
        const long step = w[0].step;                                                               \
        T *p = (T *)w[0].zone + w[0].offset + w[0].index * step;                                   \
        for (long i = 0; i < n; i++, p += step) *p = 1;                                            \
        return (double)n * p[-step];                                                               \
    }                                                                                              \
    static double add2_##T(struct walk *w, long n) {                                               \
        const long s = w[0].step, t = w[1].step;                                                   \
        const T *p = (const T *)w[0].zone + w[0].offset + w[0].index * s;                          \
        const T *q = (const T *)w[1].zone + w[1].offset + w[1].index * t;                          \
        SUM sum = 0;                                                                               \
        for (long i = 0; i < n; i++, p += s, q += t) sum += *p + *q;                               \
        return sum;                                                                                \
    }                                                                                              \
    static double muladd2_##T(struct walk *w, long n) {                                            \
        const long s = w[0].step, t = w[1].step;                                                   \
        const T *p = (const T *)w[0].zone + w[0].offset + w[0].index * s;                          \
        const T *q = (const T *)w[1].zone + w[1].offset + w[1].index * t;                          \
        SUM sum = 0;                                                                               \
        for (long i = 0; i < n; i++, p += s, q += t) sum += *p * *q;                               \
        return sum;                                                                                \
    }                                                                                              \
    static double random2_##T(struct walk *w, long n) {                                            \
        const long s = w[0].step, elements = w[1].elements;                                        \
        const T *p = (const T *)w[0].zone + w[0].offset + w[0].index * s, *zone = w[1].zone;       \
        uint64_t draw = w[1].draw;                                                                 \
        SUM sum = 0;                                                                               \
        for (long i = 0; i < n; i++, p += s) {                                                     \
            draw = next_draw(draw);                                                                \
            sum += *p + zone[drawn(draw, elements)];                                               \
        }                                                                                          \
        w[1].draw = draw;                                                                          \
        return sum;                                                                                \
    }                                                                                              \
    /* writes the first zone from the second, which is read and scaled (STREAM's scale) */         \
    static double copy2_##T(struct walk *w, long n) {                                              \
        const long s = w[0].step, t = w[1].step;                                                   \
        T *p = (T *)w[0].zone + w[0].offset + w[0].index * s;                                      \
        const T *q = (const T *)w[1].zone + w[1].offset + w[1].index * t;                          \
        for (long i = 0; i < n; i++, p += s, q += t) *p = *q * *q;                                 \
        return (double)n * p[-s];                                                                  \
    }                                                                                              \
    static double triad_##T(struct walk *w, long n) {                                              \
        const long s = w[0].step, t = w[1].step, u = w[2].step;                                    \
        T *p = (T *)w[0].zone + w[0].offset + w[0].index * s;                                      \
        const T *q = (const T *)w[1].zone + w[1].offset + w[1].index * t;                          \
        const T *r = (const T *)w[2].zone + w[2].offset + w[2].index * u;                          \
        const T scale = *q - *r;                                                                   \
        for (long i = 0; i < n; i++, p += s, q += t, r += u) *p = *q + scale * *r;                 \
        return (double)n * p[-s];                                                                  \
    }

KERNELS(double, double)
KERNELS(float, float)
KERNELS(int32_t, int)
KERNELS(int16_t, int)
KERNELS(int8_t, int)

#define EACH(name)                                                                                 \
    { name##_double, name##_float, name##_int32_t, name##_int16_t, name##_int8_t }

const struct operation operations[] = {
    {"load", 1, 0, 1, EACH(load)},
    {"add", 1, 0, 1, EACH(add)},
    {"muladd", 1, 0, 1, EACH(muladd)},
    {"record", 1, 0, 0, EACH(record)},
    {"random", 1, 0, 1, EACH(random)},
    {"write", 1, 1, 1, EACH(write)},
    {"add2", 2, 0, 2, EACH(add2)},
    {"muladd2", 2, 0, 1, EACH(muladd2)},
    {"product2", 2, 0, 1, EACH(muladd2)},
    {"random2", 2, 0, 2, EACH(random2)},
    {"copy2", 2, 1, 1, EACH(copy2)},
    {"triad", 3, 1, 1, EACH(triad)},
    {NULL, 0, 0, 0, {NULL}},
};
