/* The fork-joins of OpenMP programs, seen from outside: GNU's and LLVM's runtime.
 *
 * Defines the functions a compiler calls where a parallel region begins, so that ours is found
 * before the runtime's, tells of it, and goes on to the runtime's own. Whoever includes this says
 * what is to be done:
 *
 *   team_fork(&team)   in the thread that forks, before; 0: leave this region alone
 *   team_enter(&team)  in every thread of the team, before its part
 *   team_leave(&team)  in every thread of the team, after its part
 *   team_join(&team)   in the thread that forked, when all are done
 *   team_barrier()     after a barrier inside a region
 *   team_dynamic()     where iterations of a region are handed out while it runs
 *   team_call(site)    in any thread, before all others: a region (its code) or a call begins
 */
#ifndef ADVISOR_REGIONS_H
#define ADVISOR_REGIONS_H
#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct team {
    void (*code)(void *); /* the outlined function: what identifies the region */
    void *data;
    int dynamic;          /* iterations are handed out while the region runs (schedule) */
    int count;            /* arguments in data, LLVM only */
    uint32_t region;      /* what follows is for whoever includes this */
    uint64_t call, begin;
    uint64_t busy, slowest, threads;
};

static int team_fork(struct team *team);
static void team_enter(struct team *team);
static void team_leave(struct team *team);
static void team_join(struct team *team);
static void team_barrier(void);
static void team_dynamic(void);
static void team_call(const void *site);

#define EXPORT __attribute__((visibility("default")))

/* The name of the nth object that is loaded. */
struct nth_object {
    int left;
    char name[4096];
};

static int nth_object(struct dl_phdr_info *info, size_t size, void *wanted) {
    struct nth_object *nth = wanted;
    (void)size;
    if (nth->left--) return 0;
    snprintf(nth->name, sizeof nth->name, "%s", info->dlpi_name);
    return 1;
}

/* The runtime's own function. It may have been loaded out of sight (dlopen, as Python does), under
 * any name: then it is the first object's that has it. */
static void *runtimes_own(const char *name) {
    Dl_info ours, its;
    void *own = dlsym(RTLD_NEXT, name);
    struct nth_object nth;
    int n = 0;
    dladdr((void *)&runtimes_own, &ours);
    for (nth.left = 0; !own; nth.left = ++n) {
        if (!dl_iterate_phdr(nth_object, &nth)) break;
        void *object = *nth.name ? dlopen(nth.name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
        if (!object) continue;
        own = dlsym(object, name);
        if (own && dladdr(own, &its) && its.dli_fbase != ours.dli_fbase) break; /* it stays loaded */
        dlclose(object);
        own = NULL;
    }
    if (!own) {
        fprintf(stderr, "advisor: no library that is loaded has %s\n", name);
        abort();
    }
    return own;
}

#define OWN(name)                                                                                  \
    static __typeof__(name) *own;                                                                  \
    if (!own) own = (__typeof__(name) *)runtimes_own(#name)

static void in_team(void *given) {
    struct team *team = given;
    team_enter(team);
    team->code(team->data);
    team_leave(team);
}

/* ---- GNU: GOMP_parallel and the loops and sections combined with it ----------------------- */

typedef void (*outlined)(void *);

#define FORK(is_dynamic, plain, ours)                                                              \
    struct team team = {.code = fn, .data = data, .dynamic = (is_dynamic)};                        \
    team_call((const void *)fn);                                                                   \
    if (!team_fork(&team)) {                                                                       \
        plain;                                                                                     \
    } else {                                                                                       \
        ours;                                                                                      \
        team_join(&team);                                                                          \
    }

EXPORT void GOMP_parallel(outlined fn, void *data, unsigned threads, unsigned flags) {
    OWN(GOMP_parallel);
    FORK(0, own(fn, data, threads, flags), own(in_team, &team, threads, flags))
}

EXPORT unsigned GOMP_parallel_reductions(outlined fn, void *data, unsigned threads,
                                         unsigned flags) {
    unsigned had = 0;
    OWN(GOMP_parallel_reductions);
    /* the runtime finds the reductions in data itself, so it cannot be replaced by ours */
    struct team team = {.code = fn, .data = data};
    team_call((const void *)fn);
    const int seen = team_fork(&team);
    if (seen) team_enter(&team);
    had = own(fn, data, threads, flags);
    if (seen) {
        team_leave(&team);
        team_join(&team);
    }
    return had;
}

#define LOOP(name, is_dynamic)                                                                     \
    EXPORT void name(outlined fn, void *data, unsigned threads, long start, long end, long step,   \
                     long chunk, unsigned flags) {                                                 \
        OWN(name);                                                                                 \
        FORK(is_dynamic, own(fn, data, threads, start, end, step, chunk, flags),                   \
             own(in_team, &team, threads, start, end, step, chunk, flags))                         \
    }
LOOP(GOMP_parallel_loop_static, 0)
LOOP(GOMP_parallel_loop_dynamic, 1)
LOOP(GOMP_parallel_loop_guided, 1)
LOOP(GOMP_parallel_loop_nonmonotonic_dynamic, 1)
LOOP(GOMP_parallel_loop_nonmonotonic_guided, 1)

#define LOOP_OF_RUNTIME(name)                                                                      \
    EXPORT void name(outlined fn, void *data, unsigned threads, long start, long end, long step,   \
                     unsigned flags) {                                                             \
        OWN(name);                                                                                 \
        FORK(1, own(fn, data, threads, start, end, step, flags),                                   \
             own(in_team, &team, threads, start, end, step, flags))                                \
    }
LOOP_OF_RUNTIME(GOMP_parallel_loop_runtime)
LOOP_OF_RUNTIME(GOMP_parallel_loop_nonmonotonic_runtime)
LOOP_OF_RUNTIME(GOMP_parallel_loop_maybe_nonmonotonic_runtime)

EXPORT void GOMP_parallel_sections(outlined fn, void *data, unsigned threads, unsigned count,
                                   unsigned flags) {
    OWN(GOMP_parallel_sections);
    FORK(1, own(fn, data, threads, count, flags), own(in_team, &team, threads, count, flags))
}

/* Before GCC 4.9 the forking thread ran its part itself, between start and end. */
static __thread struct team *started[8];
static __thread unsigned starts;

static struct team *start_team(outlined fn, void *data, int dynamic) {
    team_call((const void *)fn);
    struct team *team = starts < 8 ? calloc(1, sizeof *team) : NULL;
    if (team) *team = (struct team){.code = fn, .data = data, .dynamic = dynamic};
    if (team && !team_fork(team)) {
        free(team);
        team = NULL;
    }
    if (starts < 8) started[starts] = team;
    starts++;
    return team;
}

#define START(call_plain, call_ours, is_dynamic)                                                   \
    struct team *team = start_team(fn, data, is_dynamic);                                          \
    if (!team) {                                                                                   \
        call_plain;                                                                                \
    } else {                                                                                       \
        call_ours;                                                                                 \
        team_enter(team);                                                                          \
    }

EXPORT void GOMP_parallel_start(outlined fn, void *data, unsigned threads) {
    OWN(GOMP_parallel_start);
    START(own(fn, data, threads), own(in_team, team, threads), 0)
}

#define LOOP_START(name, is_dynamic)                                                               \
    EXPORT void name(outlined fn, void *data, unsigned threads, long start, long end, long step,   \
                     long chunk) {                                                                 \
        OWN(name);                                                                                 \
        START(own(fn, data, threads, start, end, step, chunk),                                     \
              own(in_team, team, threads, start, end, step, chunk), is_dynamic)                    \
    }
LOOP_START(GOMP_parallel_loop_static_start, 0)
LOOP_START(GOMP_parallel_loop_dynamic_start, 1)
LOOP_START(GOMP_parallel_loop_guided_start, 1)

EXPORT void GOMP_parallel_loop_runtime_start(outlined fn, void *data, unsigned threads, long start,
                                             long end, long step) {
    OWN(GOMP_parallel_loop_runtime_start);
    START(own(fn, data, threads, start, end, step), own(in_team, team, threads, start, end, step),
          1)
}

EXPORT void GOMP_parallel_sections_start(outlined fn, void *data, unsigned threads,
                                         unsigned count) {
    OWN(GOMP_parallel_sections_start);
    START(own(fn, data, threads, count), own(in_team, team, threads, count), 1)
}

EXPORT void GOMP_parallel_end(void) {
    OWN(GOMP_parallel_end);
    struct team *team = starts && starts <= 8 ? started[starts - 1] : NULL;
    if (starts) starts--;
    if (team) team_leave(team);
    own();
    if (team) team_join(team);
    free(team);
}

EXPORT void GOMP_barrier(void) {
    OWN(GOMP_barrier);
    team_call(__builtin_return_address(0));
    own();
    team_barrier();
}

EXPORT void GOMP_loop_end(void) {
    OWN(GOMP_loop_end);
    team_call(__builtin_return_address(0));
    own();
    team_barrier();
}

#define HANDED_OUT(name)                                                                           \
    EXPORT _Bool name(long start, long end, long step, long chunk, long *first, long *last) {      \
        OWN(name);                                                                                 \
        team_dynamic();                                                                            \
        return own(start, end, step, chunk, first, last);                                          \
    }
HANDED_OUT(GOMP_loop_dynamic_start)
HANDED_OUT(GOMP_loop_guided_start)
HANDED_OUT(GOMP_loop_nonmonotonic_dynamic_start)
HANDED_OUT(GOMP_loop_nonmonotonic_guided_start)

#define HANDED_OUT_AT_RUNTIME(name)                                                                \
    EXPORT _Bool name(long start, long end, long step, long *first, long *last) {                  \
        OWN(name);                                                                                 \
        team_dynamic();                                                                            \
        return own(start, end, step, first, last);                                                 \
    }
HANDED_OUT_AT_RUNTIME(GOMP_loop_runtime_start)
HANDED_OUT_AT_RUNTIME(GOMP_loop_nonmonotonic_runtime_start)
HANDED_OUT_AT_RUNTIME(GOMP_loop_maybe_nonmonotonic_runtime_start)

/* ---- LLVM and Intel: __kmpc_fork_call ------------------------------------------------------ */

typedef void (*microtask)(int32_t *, int32_t *, ...);
#define MOST 200 /* arguments that can be handed on */

#define A4(n) a[n], a[n + 1], a[n + 2], a[n + 3]
#define A20(n) A4(n), A4(n + 4), A4(n + 8), A4(n + 12), A4(n + 16)
#define A200 A20(0), A20(20), A20(40), A20(60), A20(80), A20(100), A20(120), A20(140), A20(160), A20(180)

/* Surplus arguments do no harm: the callee takes those it knows. */
static void in_kmpc_team(int32_t *global, int32_t *bound, struct team *team) {
    void **const a = team->data;
    const microtask code = (microtask)(void *)team->code;
    team_enter(team);
    if (team->count <= 4)
        code(global, bound, A4(0));
    else if (team->count <= 20)
        code(global, bound, A20(0));
    else
        code(global, bound, A200);
    team_leave(team);
}

EXPORT void __kmpc_fork_call(void *where, int32_t count, microtask code, ...) {
    static void (*own)(void *, int32_t, microtask, ...);
    void *a[MOST] = {0};
    va_list rest;
    if (!own) own = (void (*)(void *, int32_t, microtask, ...))runtimes_own("__kmpc_fork_call");
    if (count > MOST) {
        fprintf(stderr, "advisor: a parallel region shares %d variables, more than %d\n", count,
                MOST);
        abort();
    }
    va_start(rest, code);
    for (int i = 0; i < count; i++) a[i] = va_arg(rest, void *);
    va_end(rest);
    struct team team = {.code = (outlined)(void *)code, .data = a, .count = count};
    team_call((const void *)code);
    if (!team_fork(&team)) {
        own(where, count, code, A200);
    } else {
        own(where, 1, (microtask)(void *)in_kmpc_team, &team);
        team_join(&team);
    }
}

#define DISPATCH(name, type)                                                                       \
    EXPORT void name(void *where, int32_t global, int32_t schedule, type lo, type hi, type step,   \
                     type chunk) {                                                                 \
        OWN(name);                                                                                 \
        team_dynamic();                                                                            \
        own(where, global, schedule, lo, hi, step, chunk);                                         \
    }
DISPATCH(__kmpc_dispatch_init_4, int32_t)
DISPATCH(__kmpc_dispatch_init_4u, uint32_t)
DISPATCH(__kmpc_dispatch_init_8, int64_t)
DISPATCH(__kmpc_dispatch_init_8u, uint64_t)

EXPORT void __kmpc_barrier(void *where, int32_t global) {
    OWN(__kmpc_barrier);
    team_call(__builtin_return_address(0));
    own(where, global);
    team_barrier();
}
#endif
