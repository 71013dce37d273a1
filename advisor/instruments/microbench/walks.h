/* What the microbenchmarks walk over, and what they share. */
#ifndef ADVISOR_WALKS_H
#define ADVISOR_WALKS_H

#include <stdint.h>

/* One flow of accesses of one thread: a zone of elements, the step from one access to the next
 * (0: at random), and where the walk is. A pass goes through the zone once; the next starts one
 * element further, so that in the end all of a zone is used (it is dense). */
struct walk {
    void *zone;
    long elements, step;
    long offset, index;
    uint64_t draw;
};

/* A kernel runs n iterations over one to three walks, each within one pass, and returns the sum of
 * what it read. All elements hold 1, so that the sum says whether every access was made. */
typedef double kernel(struct walk *w, long n);

/* Types of elements, in the order in which operations have a kernel of each. */
enum type { DOUBLE, FLOAT, INT, SHORT, CHAR, TYPES };

struct operation {
    const char *name;
    int streams;   /* how many it walks over */
    int writes;    /* whether the first of them is written */
    double worth;  /* what one iteration adds to the sum; 0: per element of the step (records),
                      below 0: nobody checks */
    kernel *of[TYPES];
};

extern const struct operation operations[];

/* Arithmetic without memory: n turns, each of which adds 1; returns the sum. */
typedef double arithmetic(long n);

struct peak {
    const char *name;
    int each; /* iterations, here multiply-adds and the like, of one turn */
    arithmetic *run;
};

extern const struct peak peaks[];

static inline uint64_t next_draw(uint64_t draw) {
    return draw * 6364136223846793005u + 1442695040888963407u;
}

static inline long drawn(uint64_t draw, long elements) {
    return (long)((unsigned __int128)draw * (uint64_t)elements >> 64);
}

#endif
