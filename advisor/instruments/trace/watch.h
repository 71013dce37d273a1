/* Calls of OpenMP and MPI as events: when, and from where. One bounded ring per process.
 *
 * An event is the time and the call site (file and offset: the same in every configuration) of a
 * call into GNU's or LLVM's OpenMP runtime, or into MPI, C or Fortran, whatever library it is: all
 * arguments are handed on as they came, so that no header is needed. One thread of a process is
 * watched, the one that calls first. A call that comes from inside of another (MPI's Fortran
 * functions call its C ones) is the outer one's.
 *
 * With ADVISOR_WATCH each process that makes such a call has a file of its own in that folder,
 * mapped shared, readable while it runs and after a kill. What was not read before it is written
 * over is known by the counter `head`. advisor/phases/ring.py reads it; keep the two equal.
 */
#ifndef ADVISOR_WATCH_H
#define ADVISOR_WATCH_H
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define WATCH_MAGIC 0x3148435441575641ull /* "AVWATCH1" */
#define WATCH_SITES 1024 /* the last one stands for all that there was no room for */
#define WATCH_FILES 12
#define WATCH_RING 4096 /* events, a power of two */
#define WATCH_PATH 488
#define WATCH_BURSTS 128 /* a power of two */
#define WATCH_COUNTS 7

struct watch_site {
    uint64_t offset; /* of the call, as the file itself has it */
    uint64_t file;
};

struct watch_burst {
    uint64_t word, took_ns; /* word: of the event that began it, as in the ring */
    uint64_t count[WATCH_COUNTS];
};

struct watch_file {
    uint64_t magic, size, pid, rank; /* rank: of MPI plus one, 0 where none is known */
    uint64_t begin_ns, end_ns;       /* of the process; end 0: it has not ended by itself */
    uint64_t head, sites, files;     /* events ever written; sites and files known */
    uint64_t homeless;               /* events of sites there was no room for */
    char exe[WATCH_PATH];
    char file[WATCH_FILES][WATCH_PATH];
    struct watch_site site[WATCH_SITES];
    uint64_t ring[WATCH_RING]; /* ns since begin << 10 | site */
    uint64_t burst_head, counted; /* bursts ever counted; counters of each */
    struct watch_burst burst[WATCH_BURSTS];
};

static uint64_t watch_now(void);
#include "bursts.h"

static struct watch_file *watched;
static int watch_wanted, watch_taken;
static uint64_t process_begin_ns;
static __thread int watch_mine, watch_depth;
static struct {
    uintptr_t address;
    uint32_t site;
} watch_known[4 * WATCH_SITES];

static uint64_t watch_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t watch_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "MV2_COMM_WORLD_RANK", "SLURM_PROCID"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text && *text >= '0' && *text <= '9') return strtoull(text, NULL, 10) + 1;
    }
    return 0;
}

/* A file that is there is written to without being asked for room again: all of it is taken now,
 * or a full disk would end the program. */
static struct watch_file *watch_open(void) {
    const char *folder = getenv("ADVISOR_WATCH");
    char path[4096];
    int fd = -1;
    for (int n = 0; folder && fd < 0 && n < 10000; n++) {
        if (snprintf(path, sizeof path, "%s/%ld.%d", folder, (long)getpid(), n) >= 4096) return NULL;
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST) return NULL;
    }
    if (fd < 0) return NULL;
    struct watch_file *made = MAP_FAILED;
    if (!posix_fallocate(fd, 0, sizeof *made))
        made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (made == MAP_FAILED) {
        unlink(path);
        return NULL;
    }
    made->size = sizeof *made;
    made->pid = (uint64_t)getpid();
    made->rank = watch_rank();
    made->begin_ns = process_begin_ns;
    if (readlink("/proc/self/exe", made->exe, WATCH_PATH - 1) < 0) made->exe[0] = 0;
    __atomic_store_n(&made->magic, WATCH_MAGIC, __ATOMIC_RELEASE);
    return made;
}

static uint32_t watch_make_site(const void *address) {
    struct watch_file *w = watched;
    const uint64_t number = w->sites;
    if (number >= WATCH_SITES - 1) return WATCH_SITES - 1;
    struct watch_site *site = &w->site[number];
    const char *name = w->exe;
    Dl_info info;
    struct link_map *from = NULL;
    site->offset = (uint64_t)(uintptr_t)address;
    if (dladdr1(address, &info, (void **)&from, RTLD_DL_LINKMAP) && from) {
        site->offset -= from->l_addr;
        if (*from->l_name) name = from->l_name;
    }
    for (site->file = 0; site->file < w->files; site->file++)
        if (!strncmp(w->file[site->file], name, WATCH_PATH - 1)) break;
    if (site->file == w->files && w->files < WATCH_FILES) {
        snprintf(w->file[w->files], WATCH_PATH, "%s", name);
        w->files++;
    }
    __atomic_store_n(&w->sites, number + 1, __ATOMIC_RELEASE);
    return (uint32_t)number;
}

static uint32_t watch_site_of(const void *address) {
    const uintptr_t key = (uintptr_t)address;
    const uint32_t mask = sizeof watch_known / sizeof *watch_known - 1;
    uint32_t at = (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 40) & mask;
    for (uint32_t tries = 0; tries <= mask; tries++, at = (at + 1) & mask) {
        if (watch_known[at].address == key) return watch_known[at].site;
        if (!watch_known[at].address) {
            const uint32_t site = watch_make_site(address);
            if (site < WATCH_SITES - 1) {
                watch_known[at].address = key;
                watch_known[at].site = site;
            }
            return site;
        }
    }
    return WATCH_SITES - 1;
}

static void watch_event(const void *address) {
    if (!watch_wanted || watch_depth) return;
    if (!watch_mine) {
        int nobody = 0;
        if (__atomic_load_n(&watch_taken, __ATOMIC_RELAXED) ||
            !__atomic_compare_exchange_n(&watch_taken, &nobody, 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return;
        watch_mine = 1;
    }
    if (!watched) {
        if (!(watched = watch_open())) {
            watch_wanted = 0; /* no room, no folder: the program goes on unwatched */
            return;
        }
        burst_open();
    }
    const uint32_t site = watch_site_of(address);
    const uint64_t at = watched->head;
    if (site == WATCH_SITES - 1) watched->homeless++;
    const uint64_t now = watch_now(), word = (now - watched->begin_ns) << 10 | site;
    watched->ring[at & (WATCH_RING - 1)] = word;
    __atomic_store_n(&watched->head, at + 1, __ATOMIC_RELEASE);
    burst_event(watched, now, word);
}

/* The runtime's own function has returned: what it waited for is over. */
static void watch_returned(void) {
    if (burst_file >= 0 && watch_mine && !watch_depth) burst_returned(watch_now());
}

static void watch_begin(void) {
    const char *folder = getenv("ADVISOR_WATCH");
    process_begin_ns = watch_now();
    watch_wanted = folder && *folder;
}

static void watch_in_child(void) {
    watched = NULL; /* the parent's */
    burst_file = -1;
    watch_taken = watch_mine = watch_depth = 0;
    memset(watch_known, 0, sizeof watch_known);
    process_begin_ns = watch_now();
}

static void watch_end(void) {
    if (watched) watched->end_ns = watch_now();
}

/* ---- further functions of the runtimes, and MPI's ------------------------------------------ */

/* Integers and pointers only, at most fourteen (Fortran's MPI_Rget_accumulate; MPI_Sendrecv has
 * thirteen there): those that a function does not have are what lies in the caller's frame, and are
 * not looked at. */
#define FOURTEEN(of)                                                                               \
    of(a), of(b), of(c), of(d), of(e), of(f), of(g), of(h), of(i), of(j), of(k), of(l), of(m), of(n)
#define DECLARED(x) long x
#define SAME(x) x

typedef long (*any_function)(FOURTEEN(DECLARED));

static __attribute__((noinline)) void watch_enters(any_function *own, const char *name,
                                                   const void *address) {
    if (!*own) *own = (any_function)runtimes_own(name);
    watch_event(address);
    watch_depth++;
}

static __attribute__((noinline)) void watch_leaves(void) {
    watch_depth--;
    watch_returned();
}

#define HANDED_ON(name)                                                                            \
    EXPORT long name(FOURTEEN(DECLARED)) {                                                         \
        static any_function own;                                                                   \
        watch_enters(&own, #name, __builtin_return_address(0));                                    \
        const long result = own(FOURTEEN(SAME));                                                   \
        watch_leaves();                                                                            \
        return result;                                                                             \
    }

HANDED_ON(GOMP_single_start)
HANDED_ON(GOMP_single_copy_start)
HANDED_ON(GOMP_taskwait)
HANDED_ON(GOMP_taskgroup_end)
HANDED_ON(GOMP_barrier_cancel)
HANDED_ON(GOMP_sections_end)
HANDED_ON(__kmpc_single)
HANDED_ON(__kmpc_omp_taskwait)
HANDED_ON(__kmpc_end_taskgroup)
HANDED_ON(__kmpc_for_static_init_4)
HANDED_ON(__kmpc_for_static_init_4u)
HANDED_ON(__kmpc_for_static_init_8)
HANDED_ON(__kmpc_for_static_init_8u)
HANDED_ON(__kmpc_reduce)
HANDED_ON(__kmpc_reduce_nowait)

/* C, Fortran as compilers name it, and mpi_f08's own functions (ts: those that take buffers). Those
 * that only look whether something has come (MPI_Test) are none: how often is not the program's. */
#define MPI_CALL(name, fortran)                                                                    \
    HANDED_ON(MPI_##name)                                                                          \
    HANDED_ON(mpi_##fortran##_)                                                                    \
    HANDED_ON(mpi_##fortran##__)                                                                   \
    HANDED_ON(mpi_##fortran##_f08_)                                                                \
    HANDED_ON(mpi_##fortran##_f08ts_)

MPI_CALL(Init, init) MPI_CALL(Init_thread, init_thread) MPI_CALL(Finalize, finalize)
MPI_CALL(Barrier, barrier) MPI_CALL(Bcast, bcast) MPI_CALL(Reduce, reduce)
MPI_CALL(Allreduce, allreduce) MPI_CALL(Gather, gather) MPI_CALL(Gatherv, gatherv)
MPI_CALL(Scatter, scatter) MPI_CALL(Scatterv, scatterv) MPI_CALL(Allgather, allgather)
MPI_CALL(Allgatherv, allgatherv) MPI_CALL(Alltoall, alltoall) MPI_CALL(Alltoallv, alltoallv)
MPI_CALL(Alltoallw, alltoallw) MPI_CALL(Reduce_scatter, reduce_scatter)
MPI_CALL(Reduce_scatter_block, reduce_scatter_block) MPI_CALL(Scan, scan) MPI_CALL(Exscan, exscan)
MPI_CALL(Neighbor_allgather, neighbor_allgather) MPI_CALL(Neighbor_allgatherv, neighbor_allgatherv)
MPI_CALL(Neighbor_alltoall, neighbor_alltoall) MPI_CALL(Neighbor_alltoallv, neighbor_alltoallv)
MPI_CALL(Neighbor_alltoallw, neighbor_alltoallw) MPI_CALL(Ibarrier, ibarrier)
MPI_CALL(Ibcast, ibcast) MPI_CALL(Ireduce, ireduce) MPI_CALL(Iallreduce, iallreduce)
MPI_CALL(Igather, igather) MPI_CALL(Igatherv, igatherv) MPI_CALL(Iscatter, iscatter)
MPI_CALL(Iscatterv, iscatterv) MPI_CALL(Iallgather, iallgather) MPI_CALL(Iallgatherv, iallgatherv)
MPI_CALL(Ialltoall, ialltoall) MPI_CALL(Ialltoallv, ialltoallv) MPI_CALL(Ialltoallw, ialltoallw)
MPI_CALL(Ireduce_scatter, ireduce_scatter) MPI_CALL(Ireduce_scatter_block, ireduce_scatter_block)
MPI_CALL(Iscan, iscan) MPI_CALL(Iexscan, iexscan) MPI_CALL(Ineighbor_allgather, ineighbor_allgather)
MPI_CALL(Ineighbor_allgatherv, ineighbor_allgatherv)
MPI_CALL(Ineighbor_alltoall, ineighbor_alltoall) MPI_CALL(Ineighbor_alltoallv, ineighbor_alltoallv)
MPI_CALL(Ineighbor_alltoallw, ineighbor_alltoallw) MPI_CALL(Wait, wait) MPI_CALL(Waitall, waitall)
MPI_CALL(Waitany, waitany) MPI_CALL(Waitsome, waitsome) MPI_CALL(Send, send) MPI_CALL(Ssend, ssend)
MPI_CALL(Bsend, bsend) MPI_CALL(Rsend, rsend) MPI_CALL(Recv, recv) MPI_CALL(Mrecv, mrecv)
MPI_CALL(Isend, isend) MPI_CALL(Issend, issend) MPI_CALL(Ibsend, ibsend) MPI_CALL(Irsend, irsend)
MPI_CALL(Irecv, irecv) MPI_CALL(Imrecv, imrecv) MPI_CALL(Sendrecv, sendrecv)
MPI_CALL(Sendrecv_replace, sendrecv_replace) MPI_CALL(Isendrecv, isendrecv)
MPI_CALL(Isendrecv_replace, isendrecv_replace) MPI_CALL(Probe, probe) MPI_CALL(Mprobe, mprobe)
MPI_CALL(Start, start) MPI_CALL(Startall, startall) MPI_CALL(Put, put) MPI_CALL(Get, get)
MPI_CALL(Accumulate, accumulate) MPI_CALL(Get_accumulate, get_accumulate) MPI_CALL(Rput, rput)
MPI_CALL(Rget, rget) MPI_CALL(Raccumulate, raccumulate) MPI_CALL(Rget_accumulate, rget_accumulate)
MPI_CALL(Fetch_and_op, fetch_and_op) MPI_CALL(Compare_and_swap, compare_and_swap)
MPI_CALL(Win_fence, win_fence) MPI_CALL(Win_start, win_start) MPI_CALL(Win_complete, win_complete)
MPI_CALL(Win_post, win_post) MPI_CALL(Win_wait, win_wait) MPI_CALL(Win_lock, win_lock)
MPI_CALL(Win_lock_all, win_lock_all) MPI_CALL(Win_unlock, win_unlock)
MPI_CALL(Win_unlock_all, win_unlock_all) MPI_CALL(Win_flush, win_flush)
MPI_CALL(Win_flush_all, win_flush_all) MPI_CALL(Win_flush_local, win_flush_local)
MPI_CALL(Win_flush_local_all, win_flush_local_all)
#endif
