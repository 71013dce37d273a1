/* What is kept of every access site: a summary of bounded size, never a list of addresses.
 *
 * A site is one load or store instruction, seen by one thread inside one parallel region. Kept
 * are its number of accesses, the frequent differences between one address and the next (local
 * strides), the zone it touches, and a sample of the cache lines it touches.
 *
 * The zone is taken per interval (from a fork or barrier to the next), so that arrays that change
 * roles from step to step do not count as one large zone. The sample holds the lines whose hash
 * lies below a threshold that falls as more lines come (SHARDS of fixed size, Waldspurger et al.,
 * FAST 2015): it estimates how many different lines were touched and, because all threads use the
 * same hash, which of them several threads touched. Samples are drawn in a site's first interval
 * and then in those whose numbers are powers of two.
 *
 * Everything lies in one file that is mapped shared, so that it is there however the program
 * ends. No library is used, since this runs inside the traced program and inside valgrind.
 * advisor/ranking/characterise_files.py reads the file; keep the two equal.
 */
#ifndef ADVISOR_SITES_H
#define ADVISOR_SITES_H
#include <stdint.h>

#define SITES_MAGIC 0x3153455449535641ull /* "AVSITES1" */
#define LINE_SHIFT 6
#define STRIDES 6
#define SAMPLE 1024     /* lines at most in a sample; at least half of it once it was full */
#define FIRST_SLOTS 128 /* of a sample's hash table; it grows to twice SAMPLE */
#define REGIONS 512
#define MODULES 64

struct sample {
    uint64_t lo, hi;    /* lowest address; highest address + size */
    uint64_t count;     /* accesses in this interval; while it goes on, those before it */
    uint64_t interval;  /* its number, 0: none */
    uint64_t threshold; /* lines whose hash is below it are in the sample */
    uint64_t lines;     /* how many are */
    uint64_t slots;     /* of the hash table, a power of two, 0: none */
    uint64_t table;     /* its offset in the file; a slot holds line + 1, 0 when free */
};

struct site {
    uint64_t pc;
    uint32_t region, thread;
    uint32_t size, element; /* bytes of an access and of what it holds (differ in SIMD code) */
    uint32_t write, sampling;
    uint64_t count;           /* accesses */
    uint64_t moves;           /* those to another line than the one before */
    uint64_t last, last_line; /* address; line + 1 */
    int64_t stride[STRIDES];  /* the most frequent one first */
    uint64_t hits[STRIDES];
    uint64_t next;    /* offset of the site made before this one, 0: none */
    uint64_t folded;  /* accesses in the intervals that are over */
    uint64_t spanned; /* sum over them of accesses * size of the zone, in KB */
    uint64_t intervals;
    struct sample now, best;
};

struct traced_region {
    uint64_t code;  /* address of the outlined function, 0: outside all regions */
    uint64_t calls; /* forks */
    uint64_t flops; /* floating-point operations, where they can be counted */
};

struct module {
    uint64_t base, lo, hi; /* what to subtract from an address; where the code lies */
    char path[488];
};

struct sites_file {
    uint64_t magic, size, end; /* size of this header; first free byte */
    uint64_t limit, pid, threads, regions, modules;
    uint64_t lost;     /* accesses of sites there was no room for */
    uint64_t complete; /* 1: the program came to its end */
    uint64_t counts_flops, last_site;
    char exe[488];
    struct traced_region region[REGIONS];
    struct module module[MODULES];
    /* then, to the end: sites and the tables of their samples */
};

/* ---- one thread's view of a site ---------------------------------------------------------- */

/* Takes bytes from the end of the file; 0 when it is full. Given by whoever includes this. */
static uint64_t sites_take(uint64_t bytes);
static char *sites_base; /* where the file is mapped */

static inline uint64_t sites_hash(uint64_t line) {
    line ^= line >> 31;
    line *= 0x7fb5d329728ea185ull;
    line ^= line >> 27;
    line *= 0x81dadef4bc2dd44dull;
    return line ^ line >> 33;
}

static int sample_put(struct sample *m, uint64_t line, uint64_t hash) {
    uint64_t *slots = (uint64_t *)(sites_base + m->table);
    const uint64_t mask = m->slots - 1;
    uint64_t at = hash & mask;
    for (; slots[at]; at = (at + 1) & mask)
        if (slots[at] == line) return 0;
    slots[at] = line;
    m->lines++;
    return 1;
}

/* Puts what is below the threshold from one table into another; both may be the same. */
static void sample_rebuild(struct sample *m, uint64_t table, uint64_t slots) {
    uint64_t kept[SAMPLE + 1], n = 0, *old = (uint64_t *)(sites_base + m->table);
    for (uint64_t i = 0; i < m->slots; i++) {
        if (old[i] && sites_hash(old[i]) < m->threshold) kept[n++] = old[i];
        if (table == m->table) old[i] = 0;
    }
    m->table = table;
    m->slots = slots;
    m->lines = 0;
    while (n--) sample_put(m, kept[n], sites_hash(kept[n]));
}

static void sample_line(struct sample *m, uint64_t line) {
    const uint64_t hash = sites_hash(line);
    if (hash >= m->threshold) return;
    if (!m->slots) {
        m->table = sites_take(FIRST_SLOTS * 8);
        if (!m->table) {
            m->threshold = 0;
            return;
        }
        m->slots = FIRST_SLOTS;
    }
    if (!sample_put(m, line, hash) || m->lines * 2 < m->slots) return;
    if (m->slots < 2 * SAMPLE) {
        const uint64_t table = sites_take(m->slots * 16);
        if (table) {
            sample_rebuild(m, table, m->slots * 2);
            return;
        }
    }
    m->threshold >>= 1;
    sample_rebuild(m, m->table, m->slots);
}

static inline int power_of_two(uint64_t n) { return !(n & (n - 1)); }

/* An interval number is call << 16 | barriers passed in it. What is sampled follows from it, so
 * that all threads of a team sample the same intervals. */
static inline int interval_sampled(const struct site *s, uint64_t interval) {
    const uint64_t call = interval >> 16, step = interval & 0xffff;
    if (!s->best.interval) return 1;
    return power_of_two(call) &&
           (power_of_two(step + 1) || step == (s->best.interval & 0xffff));
}

static void site_begin(struct site *s, uint64_t interval, uint64_t address) {
    struct sample *m = &s->now;
    uint64_t *slots = (uint64_t *)(sites_base + m->table);
    for (uint64_t i = 0; m->lines && i < m->slots; i++) slots[i] = 0;
    m->lo = address;
    m->hi = address + s->size;
    m->count = s->count;
    m->interval = interval;
    m->threshold = ~0ull;
    m->lines = 0;
    s->sampling = interval_sampled(s, interval);
}

/* The interval is over: its zone is added up, its sample kept if it is not a small one. */
static void site_fold(struct site *s) {
    struct sample *m = &s->now, spare;
    const uint64_t lines = ((m->hi - 1) >> LINE_SHIFT) - (m->lo >> LINE_SHIFT) + 1;
    m->count = s->count - m->count;
    s->folded += m->count;
    s->spanned += (uint64_t)((double)m->count * (double)lines / 16.0);
    s->intervals++;
    if (s->sampling && 2 * m->count >= s->best.count) {
        spare = s->best;
        s->best = *m;
        *m = spare;
    }
}

static void site_move(struct site *s, uint64_t interval, uint64_t line, uint64_t address) {
    s->last_line = line;
    s->moves++;
    if (s->now.interval != interval) {
        s->count--; /* the access that brought us here belongs to the new interval */
        site_fold(s);
        site_begin(s, interval, address);
        s->count++;
    }
    if (address < s->now.lo) s->now.lo = address;
    if (address + s->size > s->now.hi) s->now.hi = address + s->size;
    if (s->sampling) sample_line(&s->now, line);
}

/* The first place is never lowered, so that its count is exact; the others are those of Misra
 * and Gries, which cannot miss a frequent one. */
static void site_stride(struct site *s, int64_t stride) {
    int free = 0;
    for (int i = 1; i < STRIDES; i++) {
        if (s->hits[i] == 0) {
            if (!free) free = i;
        } else if (s->stride[i] == stride) {
            if (++s->hits[i] > s->hits[0]) {
                const uint64_t hits = s->hits[0];
                s->stride[i] = s->stride[0];
                s->stride[0] = stride;
                s->hits[0] = s->hits[i];
                s->hits[i] = hits;
            }
            return;
        }
    }
    if (free) {
        s->stride[free] = stride;
        s->hits[free] = 1;
    } else
        for (int i = 1; i < STRIDES; i++) s->hits[i]--;
}

static inline void site_touch(struct site *s, uint64_t interval, uint64_t address) {
    const int64_t stride = (int64_t)(address - s->last);
    const uint64_t line = (address >> LINE_SHIFT) + 1;
    s->count++;
    s->last = address;
    if (stride == s->stride[0])
        s->hits[0]++;
    else
        site_stride(s, stride);
    if (line != s->last_line) site_move(s, interval, line, address);
}

/* Makes a site at its first access; 0 when there is no room. */
static struct site *site_make(uint64_t pc, uint32_t region, uint32_t thread, uint32_t size,
                              uint32_t element, uint32_t write, uint64_t interval,
                              uint64_t address) {
    const uint64_t at = sites_take(sizeof(struct site));
    struct site *s = (struct site *)(sites_base + at);
    if (!at) return 0;
    s->next = __atomic_exchange_n(&((struct sites_file *)sites_base)->last_site, at,
                                  __ATOMIC_RELAXED);
    s->pc = pc;
    s->region = region;
    s->thread = thread;
    s->size = size;
    s->element = element;
    s->write = write;
    s->last = address;
    s->last_line = (address >> LINE_SHIFT) + 1;
    site_begin(s, interval, address);
    s->count = 1;
    s->moves = 1;
    if (s->sampling) sample_line(&s->now, s->last_line);
    return s;
}
#endif
