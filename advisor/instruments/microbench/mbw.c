/* Microbenchmarks of one machine: reads what to run from its input, a line each.
 *
 *   run NAME DTYPE THREADS SECONDS [ZONE...]    ZONE: c|p:BYTES:STRIDE (stride 0: at random)
 *   again                                       the same with as many iterations
 *
 * and answers each with "ok SECONDS ITERATIONS" or "error WHY". Iterations are those of one
 * thread; a shared zone (c) is walked over whole by every thread, of a private one (p) each has
 * its own. `run` makes as many passes as take about SECONDS, after one to warm up. Threads are
 * pinned, one to a CPU in turn. The sum over all that was read is held against what it must be.
 */
#define _GNU_SOURCE
#include "walks.h"

#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ZONES = 3, MOST_THREADS = 1024, BLOCK = 4096, MOST_DRAWS = 1 << 20 };

struct zone {
    char access;
    long bytes, stride;
};

struct request {
    const struct operation *operation;
    const struct peak *peak;
    enum type type;
    int dtype, threads; /* bytes of an element */
    double seconds;
    struct zone zones[MOST_ZONES];
};

/* What was filled stays: the next request often wants the same. */
struct memory {
    void *at;
    long bytes;
    int kind; /* what it is filled with: its type and 1, 0 for nothing */
};

static struct memory shared[MOST_ZONES], own[MOST_THREADS][MOST_ZONES];
static int cpus[MOST_THREADS], cpu_count;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void list_cpus(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set)) return;
    for (int cpu = 0; cpu < CPU_SETSIZE && cpu_count < MOST_THREADS; cpu++)
        if (CPU_ISSET(cpu, &set)) cpus[cpu_count++] = cpu;
}

static void pin(int thread) {
    if (cpu_count == 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus[thread % cpu_count], &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* How a request names a type of elements, and the bytes of one. */
static const struct {
    const char *name;
    int bytes;
} types[TYPES] = {{"8", 8}, {"4", 4}, {"i4", 4}, {"i2", 2}, {"i1", 1}};

#define FILL(T)                                                                                    \
    for (long i = 0; i < elements; i++) ((T *)at)[i] = 1;                                          \
    break

static void fill(void *at, long elements, enum type type) {
    switch (type) {
    case DOUBLE: FILL(double);
    case FLOAT: FILL(float);
    case INT: FILL(int32_t);
    case SHORT: FILL(int16_t);
    default: FILL(int8_t);
    }
}

/* Make a piece of memory large enough and of one type; returns 0 when there is none. */
static int provide(struct memory *m, long bytes, enum type type, int filled) {
    if (m->bytes < bytes) {
        free(m->at);
        m->at = NULL;
        m->bytes = 0;
        if (posix_memalign(&m->at, 4096, bytes)) return 0;
        m->bytes = bytes;
        m->kind = 0;
    }
    if (filled && m->kind != (int)type + 1) {
        fill(m->at, m->bytes / types[type].bytes, type);
        m->kind = type + 1;
    }
    return 1;
}

/* The threads fill their parts of a shared zone, so that it lies where they are. */
static int provide_shared(struct memory *m, long bytes, enum type type, int threads) {
    if (m->bytes >= bytes && m->kind == (int)type + 1) return 1;
    if (!provide(m, bytes, type, 0)) return 0;
    const long elements = m->bytes / types[type].bytes;
#pragma omp parallel num_threads(threads)
    {
        const int t = omp_get_thread_num();
        pin(t);
        const long from = elements * t / threads, to = elements * (t + 1) / threads;
        fill((char *)m->at + from * types[type].bytes, to - from, type);
    }
    m->kind = type + 1;
    return 1;
}

static void step_on(struct walk *w, long pass, long n, int rotates) {
    w->index += n;
    if (w->index == pass) {
        w->index = 0;
        if (rotates && ++w->offset == w->step) w->offset = 0;
    }
}

static long pass_of(const struct walk *w) {
    if (w->step) return w->elements / w->step;
    return w->elements < MOST_DRAWS ? w->elements : MOST_DRAWS;
}

/* Run n iterations over the zones of one thread; returns the sum. */
static double go(const struct request *r, struct walk *w, long n) {
    const struct operation *o = r->operation;
    kernel *run = o->of[r->type];
    const int record = o->worth == 0, product = strcmp(o->name, "product2") == 0;
    double sum = 0;
    long pass[MOST_ZONES];
    for (int k = 0; k < o->streams; k++) pass[k] = pass_of(&w[k]);
    /* the product reads one row again for every column, as a matrix product does */
    long row = 0, column = 0;
    if (product && pass[0] < pass[1]) pass[1] = pass[0];
    while (n > 0) {
        long m = n < BLOCK ? n : BLOCK;
        for (int k = 0; k < o->streams; k++)
            if (pass[k] - w[k].index < m) m = pass[k] - w[k].index;
        sum += run(w, m);
        n -= m;
        for (int k = 0; k < o->streams; k++) step_on(&w[k], pass[k], m, !record && w[k].step);
        if (product) {
            w[1].offset = row;
            if (w[0].index == 0 && ++column == w[0].step) {
                column = 0;
                row = row + 2 * pass[1] <= w[1].elements ? row + pass[1] : 0;
                w[1].offset = row;
            }
        }
    }
    return sum;
}

/* Run n iterations in every thread. Returns the seconds of the slowest, negative when the sum is
 * not what it must be. */
static double measure(const struct request *r, long n) {
    double begin = 0, end = 0;
    int wrong = 0;
#pragma omp parallel num_threads(r->threads) reduction(+ : wrong)
    {
        const int t = omp_get_thread_num();
        struct walk w[MOST_ZONES] = {0};
        double sum, each = 1;
        pin(t);
        if (r->operation) {
            each = r->operation->worth;
            for (int k = 0; k < r->operation->streams; k++) {
                const struct zone *z = &r->zones[k];
                w[k].zone = (z->access == 'c' ? &shared[k] : &own[t][k])->at;
                w[k].elements = z->bytes / r->dtype;
                w[k].step = z->stride / r->dtype;
                w[k].draw = 88172645463325252u + 7919u * (t + 1);
            }
            if (each == 0) each = w[0].step;
        }
#pragma omp barrier
#pragma omp master
        begin = now();
        sum = r->operation ? go(r, w, n) : r->peak->run(n);
#pragma omp barrier
#pragma omp master
        end = now();
        wrong += each > 0 && fabs(sum / ((double)n * each) - 1) > 1e-6;
    }
    return wrong ? -1 : end - begin;
}

static const char *parse(char *line, struct request *r) {
    char *save, *word = strtok_r(line, " \n", &save);
    int zones = 0;
    memset(r, 0, sizeof *r);
    if (!word || !(word = strtok_r(NULL, " \n", &save))) return "run NAME DTYPE THREADS SECONDS";
    for (const struct operation *o = operations; o->name; o++)
        if (strcmp(o->name, word) == 0) r->operation = o;
    for (const struct peak *p = peaks; p->name; p++)
        if (strcmp(p->name, word) == 0) r->peak = p;
    if (!r->operation && !r->peak) return "there is no such microbenchmark";
    word = strtok_r(NULL, " \n", &save);
    for (int t = DOUBLE; word && t < TYPES; t++)
        if (strcmp(types[t].name, word) == 0) {
            r->type = t;
            r->dtype = types[t].bytes;
        }
    if (!r->dtype) return "an element has 8 or 4 bytes, an integer i4, i2 or i1";
    word = strtok_r(NULL, " \n", &save);
    r->threads = word ? atoi(word) : 0;
    if (r->threads < 1 || r->threads > MOST_THREADS) return "threads: 1 to 1024";
    word = strtok_r(NULL, " \n", &save);
    r->seconds = word ? atof(word) : 0;
    if (!(r->seconds > 0 && r->seconds < 3600)) return "seconds: above 0, below 3600";
    while ((word = strtok_r(NULL, " \n", &save))) {
        if (zones == MOST_ZONES) return "too many zones";
        struct zone *z = &r->zones[zones++];
        if (sscanf(word, "%c:%ld:%ld", &z->access, &z->bytes, &z->stride) != 3 ||
            (z->access != 'c' && z->access != 'p'))
            return "a zone is c|p:BYTES:STRIDE";
        if (z->bytes < r->dtype || z->stride < 0 || z->stride % r->dtype || z->stride > z->bytes)
            return "a stride is whole elements, and not more than its zone";
    }
    if (zones != (r->operation ? r->operation->streams : 0)) return "not its number of zones";
    if (r->operation && strcmp(r->operation->name, "own") == 0) return NULL;
    if (r->operation && strstr(r->operation->name, "random")) {
        if (r->zones[zones - 1].stride) return "its last zone is used at random: stride 0";
        zones--;
    }
    for (int k = 0; k < zones; k++)
        if (r->zones[k].stride == 0) return "only random ones have stride 0";
    return NULL;
}

static const char *prepare(const struct request *r) {
    int failed = 0;
    if (!r->operation) return NULL;
    for (int k = 0; k < r->operation->streams; k++) {
        const struct zone *z = &r->zones[k];
        if (z->access == 'c') {
            if (!provide_shared(&shared[k], z->bytes, r->type, r->threads)) return "no memory";
            continue;
        }
#pragma omp parallel num_threads(r->threads) reduction(+ : failed)
        {
            pin(omp_get_thread_num());
            failed += !provide(&own[omp_get_thread_num()][k], z->bytes, r->type, 1);
        }
    }
    return failed ? "no memory" : NULL;
}

/* The least number of iterations that ends every walk's pass. */
static long whole(const struct request *r) {
    long most = 1;
    if (!r->operation) return BLOCK;
    for (int k = 0; k < r->operation->streams; k++) {
        const struct walk w = {.elements = r->zones[k].bytes / r->dtype,
                               .step = r->zones[k].stride / r->dtype};
        const long pass = pass_of(&w);
        if (pass > most) most = pass;
    }
    return most;
}

int main(void) {
    char *line = NULL;
    size_t room = 0;
    struct request r = {0};
    long n = 0;
    list_cpus();
    omp_set_dynamic(0);
    while (getline(&line, &room, stdin) > 0) {
        double seconds = 0;
        if (strncmp(line, "run ", 4) == 0) {
            const char *wrong = parse(line, &r);
            if (!wrong) wrong = prepare(&r);
            n = 0;
            if (wrong) {
                printf("error %s\n", wrong);
                fflush(stdout);
                continue;
            }
            const long unit = whole(&r);
            measure(&r, unit); /* warms up */
            n = unit;
            seconds = measure(&r, n);
            while (seconds >= 0 && seconds < 0.5 * r.seconds) {
                const double factor = seconds > 1e-6 ? 1.1 * r.seconds / seconds : 100;
                n = (long)(ceil((double)n / unit * (factor < 100 ? factor : 100))) * unit;
                seconds = measure(&r, n);
            }
        } else if (strncmp(line, "again", 5) == 0 && n > 0) {
            seconds = measure(&r, n);
        } else {
            printf("error run NAME..., or again after one\n");
            fflush(stdout);
            continue;
        }
        if (seconds < 0)
            printf("error the result is wrong: the work was not done\n");
        else
            printf("ok %.9f %ld\n", seconds, r.peak ? n * r.peak->each : n);
        fflush(stdout);
    }
    return 0;
}
