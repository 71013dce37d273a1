/* Times every outermost parallel region of a program it is preloaded into (LD_PRELOAD).
 *
 * A few clock readings per region and thread, and one per barrier of the forking thread, are all it
 * costs. Each process has a file of its own
 * in the folder ADVISOR_PHASES, mapped shared, so that the figures are there even if the program
 * is killed. advisor/instruments/characterise_files.py reads it; keep the two equal.
 *
 * Compiled with SEE_FILES it sees reads and writes of files, too: for programs that are characterised,
 * not for the runs of sweeps.
 *
 * With ADVISOR_WATCH set to a folder, calls of OpenMP and MPI are kept there as events (watch.h).
 *
 * With ADVISOR_TWIN set to a suffix, nothing is timed: a program that has a twin of that name is
 * replaced by it before its main begins, however deep in scripts or launchers it is started.
 */
#define _GNU_SOURCE
#ifdef SEE_FILES
#include "files.h"
#endif
#include "regions.h"
#include "watch.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PHASES_MAGIC 0x3153455341485041ull /* "APHASES1" */
#define REGIONS 1024
#define PATH 488
#define PARTS 16
#define FILES 64

/* What lies before a barrier inside a region, up to the one before it or the fork. */
struct part {
    uint64_t offset, calls, time_ns; /* offset: where the barrier returns to, in the file */
};

struct phase {
    uint64_t code, calls;
    uint64_t time_ns, longest_ns; /* from fork to join */
    uint64_t busy_ns;             /* sum over all threads of their own parts */
    uint64_t slowest_ns;          /* sum over the calls of the longest part */
    uint64_t threads, dynamic;    /* threads: most in one call */
    uint64_t offset;              /* of the code, as the file itself has it */
    char file[PATH];
    uint64_t parts; /* those beyond PARTS count to the rest of the region */
    struct part part[PARTS];
};

/* Reads or writes of one file system, in one region or outside of all. */
struct access {
    uint64_t device, write, region; /* region: its place among the phases + 1, 0: outside */
    uint64_t calls, bytes, jumps, time_ns;
    char file[PATH]; /* one of them */
};

struct phases_file {
    uint64_t magic, size, pid, begin_ns, end_ns; /* end: when last heard of */
    uint64_t complete, regions, lost_ns;         /* lost: time of regions beyond REGIONS */
    char exe[PATH];
    struct phase phase[REGIONS];
    uint64_t accesses; /* those beyond FILES are not kept */
    struct access access[FILES];
};

static struct phases_file *file;
static __thread int depth;
static __thread uint64_t entered;
static __thread struct team *inside;
static __thread const void *called;     /* where the last call of the runtime came from */
static __thread struct phase *dividing; /* in the forking thread, once a barrier divides it */
static __thread uint64_t part_begin;

static void raise_to(uint64_t *place, uint64_t value) {
    uint64_t known = __atomic_load_n(place, __ATOMIC_RELAXED);
    while (known < value && !__atomic_compare_exchange_n(place, &known, value, 1, __ATOMIC_RELAXED,
                                                         __ATOMIC_RELAXED)) {
    }
}

#define ADD(place, value) __atomic_fetch_add(&(place), (value), __ATOMIC_RELAXED)

/* Returns the place of a region, making it at its first fork; NULL when all are taken. */
static struct phase *phase_of(void *code) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    const uint64_t key = (uint64_t)(uintptr_t)code;
    uint64_t known = __atomic_load_n(&file->regions, __ATOMIC_ACQUIRE);
    for (uint64_t i = 0; i < known; i++)
        if (file->phase[i].code == key) return &file->phase[i];
    struct phase *phase = NULL;
    pthread_mutex_lock(&making);
    for (uint64_t i = known; i < file->regions; i++)
        if (file->phase[i].code == key) phase = &file->phase[i];
    if (!phase && file->regions < REGIONS) {
        Dl_info info;
        struct link_map *from = NULL;
        phase = &file->phase[file->regions];
        phase->code = phase->offset = key;
        if (dladdr1(code, &info, (void **)&from, RTLD_DL_LINKMAP) && from) {
            phase->offset = key - from->l_addr;
            snprintf(phase->file, PATH, "%s", *from->l_name ? from->l_name : file->exe);
        }
        __atomic_store_n(&file->regions, file->regions + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&making);
    return phase;
}

static int team_fork(struct team *team) {
    if (!file || depth) return 0;
    team->begin = watch_now();
    team->call = (uint64_t)(uintptr_t)pthread_self();
    return 1;
}

static void team_enter(struct team *team) {
    depth++;
    inside = team;
    entered = watch_now();
    dividing = NULL;
    part_begin = team->begin;
}

static void team_leave(struct team *team) {
    const uint64_t took = watch_now() - entered;
    depth--;
    inside = NULL;
    ADD(team->busy, took);
    ADD(team->threads, 1);
    raise_to(&team->slowest, took);
}

static void team_join(struct team *team) {
    const uint64_t end = watch_now(), took = end - team->begin;
    struct phase *phase = file ? phase_of((void *)team->code) : NULL;
    if (!file) return;
    file->end_ns = end;
    if (!phase) {
        ADD(file->lost_ns, took);
        return;
    }
    ADD(phase->calls, 1);
    ADD(phase->time_ns, took);
    ADD(phase->busy_ns, team->busy);
    ADD(phase->slowest_ns, team->slowest);
    raise_to(&phase->longest_ns, took);
    raise_to(&phase->threads, team->threads);
    if (team->dynamic) phase->dynamic = 1;
}

/* A region's parts are those of the thread that forked it: it waits at every barrier, too. */
static void team_barrier(void) {
    watch_returned();
    if (!file || depth != 1 || !inside) return;
    if (inside->call != (uint64_t)(uintptr_t)pthread_self()) return;
    const uint64_t now = watch_now(), took = now - part_begin;
    part_begin = now;
    if (!dividing) dividing = phase_of((void *)inside->code);
    if (!dividing) return;
    struct phase *phase = dividing;
    const uint64_t offset = (uint64_t)(uintptr_t)called - (phase->code - phase->offset);
    uint64_t n = 0;
    while (n < phase->parts && phase->part[n].offset != offset) n++;
    if (n == PARTS) return;
    if (n == phase->parts) {
        phase->part[n].offset = offset;
        phase->parts = n + 1;
    }
    ADD(phase->part[n].calls, 1);
    ADD(phase->part[n].time_ns, took);
}

static void team_call(const void *site) {
    called = site;
    watch_event(site);
}

static void team_dynamic(void) {
    if (inside && !inside->dynamic) inside->dynamic = 1;
}

#ifdef SEE_FILES
static int file_wanted(void) { return file != NULL; }

static struct access *access_of(int fd, uint64_t device, uint64_t write, uint64_t region) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    struct access *found = NULL;
    pthread_mutex_lock(&making);
    for (uint64_t i = 0; i < file->accesses && !found; i++) {
        struct access *a = &file->access[i];
        if (a->device == device && a->write == write && a->region == region) found = a;
    }
    if (!found && file->accesses < FILES) {
        char link[64];
        found = &file->access[file->accesses++];
        found->device = device;
        found->write = write;
        found->region = region;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, found->file, PATH - 1) < 0) found->file[0] = 0;
    }
    pthread_mutex_unlock(&making);
    return found;
}

static void file_access(int fd, uint64_t device, int write, uint64_t bytes, int jumped,
                        uint64_t ns) {
    const struct phase *phase = inside ? phase_of((void *)inside->code) : NULL;
    const uint64_t region = phase ? (uint64_t)(phase - file->phase) + 1 : 0;
    struct access *a = access_of(fd, device, (uint64_t)write, region);
    if (!a) return;
    ADD(a->time_ns, ns);
    if (bytes) ADD(a->calls, 1);
    ADD(a->bytes, bytes);
    if (jumped) ADD(a->jumps, 1);
}
#endif

static void open_file(void) {
    const char *folder = getenv("ADVISOR_PHASES");
    char path[4096];
    int fd = -1;
    file = NULL;
    for (int n = 0; folder && fd < 0 && n < 10000; n++) {
        if (snprintf(path, sizeof path, "%s/%ld.%d", folder, (long)getpid(), n) >= 4096) return;
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST) return;
    }
    if (fd < 0) return;
    void *mapped = MAP_FAILED;
    if (!ftruncate(fd, sizeof *file))
        mapped = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return;
    struct phases_file *made = mapped;
    made->size = sizeof *made;
    made->pid = (uint64_t)getpid();
    made->begin_ns = made->end_ns = watch_now();
    if (readlink("/proc/self/exe", made->exe, PATH - 1) < 0) made->exe[0] = 0;
    made->magic = PHASES_MAGIC;
    file = made;
}

static void in_child(void) {
    depth = 0;
    inside = NULL;
    open_file();
    watch_in_child();
}

/* A runtime that binds threads (OMP_PROC_BIND) has bound this one before we run; what is executed
 * next would take its one place for the whole machine. Give back all of them. */
static void unbind(void) {
    int (*count)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "omp_get_num_places");
    int (*processors)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "omp_get_place_num_procs");
    void (*list)(int, int *) = (void (*)(int, int *))dlsym(RTLD_DEFAULT, "omp_get_place_proc_ids");
    cpu_set_t set;
    if (!count || !processors || !list) return;
    CPU_ZERO(&set);
    for (int place = 0; place < count(); place++) {
        int ids[CPU_SETSIZE];
        const int n = processors(place);
        if (n < 0 || n > CPU_SETSIZE) return;
        list(place, ids);
        for (int i = 0; i < n; i++)
            if (ids[i] >= 0 && ids[i] < CPU_SETSIZE) CPU_SET(ids[i], &set);
    }
    if (CPU_COUNT(&set)) sched_setaffinity(0, sizeof set, &set);
}

static void become_twin(char **argv) {
    const char *suffix = getenv("ADVISOR_TWIN");
    char path[4096];
    if (!suffix || !*suffix) return;
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    if (length <= 0 || strlen(suffix) > 60) return;
    strcpy(path + length, suffix);
    if (access(path, X_OK)) return;
    unbind();
    execv(path, argv);
}

__attribute__((constructor)) static void begin(int argc, char **argv) {
    (void)argc;
    become_twin(argv);
    watch_begin();
    open_file();
    if (file || watch_wanted) pthread_atfork(NULL, NULL, in_child);
}

__attribute__((destructor)) static void end(void) {
    watch_end();
    if (!file) return;
    file->end_ns = watch_now();
    file->complete = 1;
}
