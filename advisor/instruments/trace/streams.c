/* The run-time part of a traced program: takes the compiler's memory-access callbacks.
 *
 * GCC and Clang call __tsan_readN and __tsan_writeN for the accesses of code compiled with
 * -fsanitize=thread; "advisor cc" links this in place of the thread sanitizer. The return address
 * names the site. Without ADVISOR_STREAMS in the environment nothing is kept.
 */
#define _GNU_SOURCE
#include "regions.h"
#include "sites.h"
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_SITES 256 /* places in a thread's first table of a region */

struct sites_table {
    uint64_t mask, used;
    struct site **site;
};

static struct sites_file *file;

static __thread struct {
    struct sites_table *table; /* of the region the thread is in; NULL: find out first */
    uint64_t interval;
    uint32_t region, number, depth;
    struct sites_table of[REGIONS];
} self;

static uint64_t sites_take(uint64_t bytes) {
    const uint64_t at = __atomic_fetch_add(&file->end, bytes, __ATOMIC_RELAXED);
    if (at + bytes <= file->limit) return at;
    __atomic_fetch_sub(&file->end, bytes, __ATOMIC_RELAXED);
    return 0;
}

/* ---- regions ------------------------------------------------------------------------------ */

static uint32_t region_of(void *code) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    const uint64_t key = (uint64_t)(uintptr_t)code;
    uint32_t at;
    for (at = 0; at < __atomic_load_n(&file->regions, __ATOMIC_ACQUIRE); at++)
        if (file->region[at].code == key) return at;
    pthread_mutex_lock(&making);
    for (at = 0; at < file->regions && file->region[at].code != key; at++) {
    }
    if (at == file->regions && at < REGIONS) {
        file->region[at].code = key;
        __atomic_store_n(&file->regions, at + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&making);
    return at < REGIONS ? at : 0; /* too many: as if outside all */
}

static int team_fork(struct team *team) {
    if (!file) return 0;
    if (self.region) { /* a region inside a region belongs to the outer one */
        team->region = self.region;
        team->call = self.interval >> 16;
        return 1;
    }
    team->region = region_of((void *)team->code);
    team->call = __atomic_add_fetch(&file->region[team->region].calls, 1, __ATOMIC_RELAXED);
    return 1;
}

static void team_enter(struct team *team) {
    self.depth++;
    self.region = team->region;
    self.interval = team->call << 16;
    self.table = NULL;
}

static void team_leave(struct team *team) {
    (void)team;
    if (--self.depth) return;
    self.region = 0;
    self.interval = 1 << 16;
    self.table = NULL;
}

static void team_join(struct team *team) { (void)team; }

static void team_call(const void *site) { (void)site; }

static void team_barrier(void) {
    if (self.region && (self.interval & 0xffff) != 0xffff) self.interval++;
}

static void team_dynamic(void) {}

/* ---- accesses ----------------------------------------------------------------------------- */

#define PLACE(pc, mask) (((pc) * 0x9e3779b97f4a7c15ull >> 32) & (mask))

static int grow(struct sites_table *table) {
    const uint64_t places = table->site ? 4 * (table->mask + 1) : FIRST_SITES;
    struct site **site = mmap(NULL, places * sizeof *site, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (site == MAP_FAILED) return 0;
    for (uint64_t i = 0; table->site && i <= table->mask; i++) {
        if (!table->site[i]) continue;
        uint64_t at = PLACE(table->site[i]->pc, places - 1);
        while (site[at]) at = (at + 1) & (places - 1);
        site[at] = table->site[i];
    }
    if (table->site) munmap(table->site, (table->mask + 1) * sizeof *site);
    table->site = site;
    table->mask = places - 1;
    return 1;
}

/* The slow path: a thread's first access in a region, a site's first, or a place shared. */
static __attribute__((noinline)) void seek(uint64_t pc, uint64_t address, uint32_t size,
                                           uint32_t write) {
    if (!file) return;
    if (!self.number) {
        self.number = (uint32_t)__atomic_add_fetch(&file->threads, 1, __ATOMIC_RELAXED);
        if (!self.interval) self.interval = 1 << 16;
    }
    struct sites_table *table = &self.of[self.region];
    if ((!table->site || 4 * table->used > table->mask) && !grow(table)) return;
    self.table = table;
    uint64_t at = PLACE(pc, table->mask);
    for (; table->site[at]; at = (at + 1) & table->mask)
        if (table->site[at]->pc == pc) {
            site_touch(table->site[at], self.interval, address);
            return;
        }
    struct site *site =
        site_make(pc, self.region, self.number, size, size, write, self.interval, address);
    if (!site) {
        __atomic_fetch_add(&file->lost, 1, __ATOMIC_RELAXED);
        return;
    }
    table->site[at] = site;
    table->used++;
}

static inline void touch(void *address, uint32_t size, uint32_t write, void *from) {
    const uint64_t pc = (uint64_t)(uintptr_t)from;
    struct sites_table *table = self.table;
    if (__builtin_expect(table != NULL, 1)) {
        struct site *site = table->site[PLACE(pc, table->mask)];
        if (__builtin_expect(site && site->pc == pc, 1)) {
            site_touch(site, self.interval, (uint64_t)(uintptr_t)address);
            return;
        }
    }
    seek(pc, (uint64_t)(uintptr_t)address, size, write);
}

#define HERE __builtin_return_address(0)

#define ACCESS(n)                                                                                  \
    EXPORT void __tsan_read##n(void *a) { touch(a, n, 0, HERE); }                                  \
    EXPORT void __tsan_write##n(void *a) { touch(a, n, 1, HERE); }                                 \
    EXPORT void __tsan_unaligned_read##n(void *a) { touch(a, n, 0, HERE); }                        \
    EXPORT void __tsan_unaligned_write##n(void *a) { touch(a, n, 1, HERE); }                       \
    EXPORT void __tsan_volatile_read##n(void *a) { touch(a, n, 0, HERE); }                         \
    EXPORT void __tsan_volatile_write##n(void *a) { touch(a, n, 1, HERE); }                        \
    EXPORT void __tsan_unaligned_volatile_read##n(void *a) { touch(a, n, 0, HERE); }               \
    EXPORT void __tsan_unaligned_volatile_write##n(void *a) { touch(a, n, 1, HERE); }              \
    EXPORT void __tsan_read_write##n(void *a) { touch(a, n, 1, HERE); }                            \
    EXPORT void __tsan_unaligned_read_write##n(void *a) { touch(a, n, 1, HERE); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

EXPORT void __tsan_read_range(void *a, unsigned long n) { touch(a, (uint32_t)n, 0, HERE); }
EXPORT void __tsan_write_range(void *a, unsigned long n) { touch(a, (uint32_t)n, 1, HERE); }
EXPORT void *__tsan_memset(void *a, int c, unsigned long n) { return memset(a, c, n); }
EXPORT void *__tsan_memcpy(void *a, const void *b, unsigned long n) { return memcpy(a, b, n); }
EXPORT void *__tsan_memmove(void *a, const void *b, unsigned long n) { return memmove(a, b, n); }
EXPORT void __tsan_init(void) {}
EXPORT void __tsan_func_entry(void *a) { (void)a; }
EXPORT void __tsan_func_exit(void) {}
EXPORT void __tsan_ignore_thread_begin(void) {}
EXPORT void __tsan_ignore_thread_end(void) {}
EXPORT void __tsan_vptr_read(void **a) { (void)a; }
EXPORT void __tsan_vptr_update(void **a, void *b) {
    (void)a;
    (void)b;
}

/* Atomic operations are replaced, not accompanied, by their callbacks: do them. The strongest
 * order is always right. */
#define MODIFY(type, bits, name, builtin)                                                          \
    EXPORT type __tsan_atomic##bits##_##name(volatile type *a, type v, int order) {                \
        (void)order;                                                                               \
        touch((void *)(uintptr_t)a, bits / 8, 1, HERE);                                            \
        return builtin(a, v, __ATOMIC_SEQ_CST);                                                    \
    }

#define ATOMIC(type, bits)                                                                         \
    EXPORT type __tsan_atomic##bits##_load(const volatile type *a, int order) {                    \
        (void)order;                                                                               \
        touch((void *)(uintptr_t)a, bits / 8, 0, HERE);                                            \
        return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    EXPORT void __tsan_atomic##bits##_store(volatile type *a, type v, int order) {                 \
        (void)order;                                                                               \
        touch((void *)(uintptr_t)a, bits / 8, 1, HERE);                                            \
        __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                              \
    MODIFY(type, bits, exchange, __atomic_exchange_n)                                              \
    MODIFY(type, bits, fetch_add, __atomic_fetch_add)                                              \
    MODIFY(type, bits, fetch_sub, __atomic_fetch_sub)                                              \
    MODIFY(type, bits, fetch_and, __atomic_fetch_and)                                              \
    MODIFY(type, bits, fetch_or, __atomic_fetch_or)                                                \
    MODIFY(type, bits, fetch_xor, __atomic_fetch_xor)                                              \
    MODIFY(type, bits, fetch_nand, __atomic_fetch_nand)                                            \
    EXPORT int __tsan_atomic##bits##_compare_exchange_strong(volatile type *a, type *c, type v,    \
                                                             int order, int other) {               \
        (void)order, (void)other;                                                                  \
        touch((void *)(uintptr_t)a, bits / 8, 1, HERE);                                            \
        return __atomic_compare_exchange_n(a, c, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
    }                                                                                              \
    EXPORT int __tsan_atomic##bits##_compare_exchange_weak(volatile type *a, type *c, type v,      \
                                                           int order, int other) {                 \
        (void)order, (void)other;                                                                  \
        touch((void *)(uintptr_t)a, bits / 8, 1, HERE);                                            \
        return __atomic_compare_exchange_n(a, c, v, 1, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
    }                                                                                              \
    EXPORT type __tsan_atomic##bits##_compare_exchange_val(volatile type *a, type c, type v,       \
                                                           int order, int other) {                 \
        (void)order, (void)other;                                                                  \
        touch((void *)(uintptr_t)a, bits / 8, 1, HERE);                                            \
        __atomic_compare_exchange_n(a, &c, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);              \
        return c;                                                                                  \
    }
ATOMIC(uint8_t, 8)
ATOMIC(uint16_t, 16)
ATOMIC(uint32_t, 32)
ATOMIC(uint64_t, 64)
EXPORT void __tsan_atomic_thread_fence(int order) {
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
EXPORT void __tsan_atomic_signal_fence(int order) {
    (void)order;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* ---- begin and end ------------------------------------------------------------------------ */

static int note_module(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    for (int i = 0; i < info->dlpi_phnum && file->modules < MODULES; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD || !(info->dlpi_phdr[i].p_flags & PF_X)) continue;
        struct module *module = &file->module[file->modules++];
        module->base = info->dlpi_addr;
        module->lo = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        module->hi = module->lo + info->dlpi_phdr[i].p_memsz;
        const char *path = info->dlpi_name && *info->dlpi_name ? info->dlpi_name : file->exe;
        snprintf(module->path, sizeof module->path, "%s", path);
    }
    return 0;
}

static void in_child(void) {
    file = NULL; /* the file stays the parent's */
    self.table = NULL;
}

__attribute__((constructor(101))) static void begin(void) {
    const char *folder = getenv("ADVISOR_STREAMS"), *bytes = getenv("ADVISOR_STREAMS_BYTES");
    char path[4096];
    int fd = -1;
    for (int n = 0; folder && fd < 0 && n < 10000; n++) {
        if (snprintf(path, sizeof path, "%s/%ld.%d", folder, (long)getpid(), n) >= 4096) return;
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST) return;
    }
    if (fd < 0) return;
    uint64_t limit = bytes ? strtoull(bytes, NULL, 10) : 0;
    if (limit < 4 * sizeof *file) limit = 256 << 20;
    void *mapped = MAP_FAILED;
    if (!ftruncate(fd, (off_t)limit))
        mapped = mmap(NULL, limit, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return;
    sites_base = mapped;
    struct sites_file *made = mapped;
    made->size = made->end = sizeof *made;
    made->limit = limit;
    made->pid = (uint64_t)getpid();
    made->regions = 1;
    if (readlink("/proc/self/exe", made->exe, sizeof made->exe - 1) < 0) made->exe[0] = 0;
    made->magic = SITES_MAGIC;
    file = made;
    dl_iterate_phdr(note_module, NULL);
    pthread_atfork(NULL, NULL, in_child);
}

__attribute__((destructor)) static void end(void) {
    if (file) file->complete = 1;
}
