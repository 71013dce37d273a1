/* Counters of bursts: what the watched thread computes between two calls, by perf_event_open.
 *
 * ADVISOR_BURSTS lists what is counted, as kind:config in hexadecimal, all in one group (advisor_lab/phases/burst_counters.py
 * has tried it). Of many bursts some are counted, drawn at random: at most 250 a second, each for two
 * reads. The time that a call waits is no part of a burst.
 *
 * The descriptors are high ones and are looked at before each read: a program that closes all of its
 * files loses the counters, not its data. Forks open their own.
 */
#ifndef ADVISOR_BURSTS_H
#define ADVISOR_BURSTS_H
#include <linux/perf_event.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define BURST_WINDOW_NS 20000000u
#ifndef BURSTS_A_WINDOW /* benchmarks/watching.py counts every burst */
#define BURSTS_A_WINDOW 5
#endif

struct burst_counts {
    uint64_t number, enabled, running, count[WATCH_COUNTS];
};

static int burst_file = -1, burst_under_way;
static uint64_t burst_number, burst_word, burst_since;
static struct burst_counts burst_before;
static struct stat burst_is;
static uint64_t window_since, window_events, window_had, burst_dice = 88172645463325252ull;

static int burst_open_one(uint32_t kind, uint64_t config, int leader, int above) {
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = PERF_ATTR_SIZE_VER5;
    attr.type = kind;
    attr.config = config;
    attr.exclude_kernel = attr.exclude_hv = 1;
    attr.read_format =
        PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    const int low = (int)syscall(SYS_perf_event_open, &attr, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
    if (low < 0) return -1;
    const int high = fcntl(low, F_DUPFD_CLOEXEC, above);
    close(low);
    return high;
}

/* In the thread that is watched: what it counts is that thread. All are opened or none. */
static void burst_open(void) {
    const char *text = getenv("ADVISOR_BURSTS");
    const int before = errno;
    int opened[WATCH_COUNTS];
    struct rlimit most;
    burst_file = -1;
    burst_number = 0;
    burst_under_way = 0;
    if (!text || !*text || getrlimit(RLIMIT_NOFILE, &most)) return;
    const int above = most.rlim_cur > 4096 ? 2048 : (int)most.rlim_cur / 2;
    while (*text && burst_number < WATCH_COUNTS) {
        char *end;
        const uint32_t kind = (uint32_t)strtoul(text, &end, 16);
        if (*end != ':') break;
        const uint64_t config = strtoull(end + 1, &end, 16);
        const int leader = burst_number ? opened[0] : -1;
        if ((opened[burst_number] = burst_open_one(kind, config, leader, above)) < 0) break;
        burst_number++;
        text = *end == ',' ? end + 1 : end;
    }
    if (*text || !burst_number || fstat(opened[0], &burst_is)) {
        while (burst_number) close(opened[--burst_number]);
    } else {
        burst_file = opened[0];
    }
    errno = before;
}

static int burst_read(struct burst_counts *counts) {
    const int before = errno;
    const ssize_t size = (ssize_t)(3 + burst_number) * 8;
    struct stat is;
    const int ours = !fstat(burst_file, &is) && is.st_ino == burst_is.st_ino &&
                     is.st_dev == burst_is.st_dev && is.st_mode == burst_is.st_mode;
    if (!ours || read(burst_file, counts, (size_t)size) != size || counts->number != burst_number)
        burst_file = -1;
    errno = before;
    return burst_file >= 0;
}

static void burst_keep(struct watch_file *to, uint64_t now, const struct burst_counts *counts) {
    const uint64_t ran = counts->running - burst_before.running;
    if (!ran) return; /* the counters were others' all the while */
    const double scale = (double)(counts->enabled - burst_before.enabled) / (double)ran;
    struct watch_burst *burst = &to->burst[to->burst_head & (WATCH_BURSTS - 1)];
    burst->word = burst_word;
    burst->took_ns = now - burst_since;
    for (uint64_t i = 0; i < WATCH_COUNTS; i++)
        burst->count[i] =
            i < burst_number ? (uint64_t)(scale * (double)(counts->count[i] - burst_before.count[i])) : 0;
    to->counted = burst_number;
    __atomic_store_n(&to->burst_head, to->burst_head + 1, __ATOMIC_RELEASE);
}

static int burst_drawn(uint64_t now) {
    if (now - window_since > BURST_WINDOW_NS) {
        window_had = window_events;
        window_since = now;
        window_events = 0;
    }
    window_events++;
    if (window_had <= BURSTS_A_WINDOW && window_events <= BURSTS_A_WINDOW) return 1;
    burst_dice ^= burst_dice << 13;
    burst_dice ^= burst_dice >> 7;
    burst_dice ^= burst_dice << 17;
    return burst_dice % (window_had > window_events ? window_had : window_events) < BURSTS_A_WINDOW;
}

/* A call begins: one burst ends, and another begins with it. */
static void burst_event(struct watch_file *to, uint64_t now, uint64_t word) {
    struct burst_counts counts;
    if (burst_file < 0) return;
    const int drawn = burst_drawn(now);
    if ((drawn || burst_under_way) && !burst_read(&counts)) return;
    if (burst_under_way) burst_keep(to, now, &counts);
    if ((burst_under_way = drawn)) burst_before = counts;
    burst_word = word;
    burst_since = now;
}

/* A call that waited has returned. */
static void burst_returned(uint64_t now) {
    struct burst_counts counts;
    if (burst_file < 0 || !burst_under_way || !burst_read(&counts)) return;
    burst_before = counts;
    burst_since = now;
}
#endif
