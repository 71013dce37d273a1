/* Input and output of one file system: reads what to run from its input, a line each.
 *
 *   io FOLDER BYTES               makes a file of so many bytes there, without a name
 *   run read|write sequential|random BLOCK SECONDS
 *   cached read|write sequential|random BLOCK SECONDS
 *
 * and answers each run with "ok SECONDS OPERATIONS DIRECT" or "error WHY". One thread, one operation
 * at a time, past the page cache (O_DIRECT) where the file system allows it (DIRECT 1); else
 * through it, reads of what it was asked to drop first, writes until they are stored. ``cached``
 * is through the page cache: reads of what is there, writes that nobody waits for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 1 << 22, ALIGNMENT = 4096, CACHED = 1 << 25 };

static char *buffer;
static long bytes;
static int fd = -1;
static uint64_t draw = 88172645463325252u;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static uint64_t next(void) {
    draw ^= draw << 13;
    draw ^= draw >> 7;
    return draw ^= draw << 17;
}

static int die(const char *what) {
    printf("error %s: %s\n", what, strerror(errno));
    fflush(stdout);
    return 1;
}

/* The file goes with this process, however that ends. What is in it cannot be compressed. */
static int make(const char *folder) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/.advisor-io-%ld", folder, (long)getpid()) >= 4096) {
        errno = ENAMETOOLONG;
        return die("open");
    }
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return die("open");
    unlink(path);
    for (long at = 0; at < LARGEST; at += 8) *(uint64_t *)(buffer + at) = next();
    for (long at = 0; at < bytes;) {
        const long rest = bytes - at < LARGEST ? bytes - at : LARGEST;
        const ssize_t done = pwrite(fd, buffer, rest, at);
        if (done <= 0) return die("write");
        at += done;
    }
    return fsync(fd) ? die("fsync") : 0;
}

static int direct(int on) {
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && !fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT);
}

/* Returns the operations made in about so many seconds, -1 when one failed. */
static long go(int writes, int random, long block, double seconds, double *took, int cached) {
    static long at;
    const long blocks = (cached && bytes > CACHED ? CACHED : bytes) / block;
    const double begin = now();
    long n = 0;
    do {
        at = random ? (long)(next() % (uint64_t)blocks) : at % blocks;
        const off_t offset = (off_t)at * block;
        ssize_t done;
        if (writes) {
            *(uint64_t *)buffer = next(); /* no block is the one that lies there already */
            done = pwrite(fd, buffer, block, offset);
        } else {
            done = pread(fd, buffer, block, offset);
        }
        if (done != block) return -1;
        n++, at++;
    } while (now() - begin < seconds);
    if (writes && !cached && fdatasync(fd)) return -1;
    *took = now() - begin;
    return n;
}

/* Returns what go() does with all in the page cache; what it wrote is stored afterwards. */
static long go_cached(int writes, int random, long block, double seconds, double *took) {
    if (!direct(0)) return -1;
    for (long at = 0; at < bytes && at < CACHED; at += LARGEST)
        if (pread(fd, buffer, LARGEST, at) < 0) return -1;
    const long n = go(writes, random, block, seconds, took, 1);
    return writes && n >= 0 && fdatasync(fd) ? -1 : n;
}

int main(int argc, char **argv) {
    char *line = NULL, how[16], operation[16], pattern[16];
    size_t room = 0;
    bytes = argc > 2 ? atol(argv[2]) : 0;
    if (bytes < LARGEST) {
        printf("error io FOLDER BYTES, at least %d\n", LARGEST);
        return 2;
    }
    if (posix_memalign((void **)&buffer, ALIGNMENT, LARGEST)) return die("memory");
    if (make(argv[1])) return 1;
    printf("ok 0 0 0\n");
    fflush(stdout);
    while (getline(&line, &room, stdin) > 0) {
        long block, n;
        double seconds, took = 0;
        if (sscanf(line, "%15s %15s %15s %ld %lf", how, operation, pattern, &block, &seconds) != 5 ||
            (strcmp(how, "run") && strcmp(how, "cached")) || block < 512 || block > LARGEST ||
            block > bytes || seconds <= 0) {
            printf("error run read|write sequential|random BLOCK SECONDS\n");
            fflush(stdout);
            continue;
        }
        const int writes = !strcmp(operation, "write"), random = !strcmp(pattern, "random");
        const int cached = !strcmp(how, "cached");
        int past = !cached && direct(1);
        n = past ? go(writes, random, block, seconds, &took, 0) : -1;
        if (cached) {
            n = go_cached(writes, random, block, seconds, &took);
        } else if (n < 0) {
            past = 0;
            direct(0);
            if (!writes) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            n = go(writes, random, block, seconds, &took, 0);
        }
        if (n < 0) {
            die(operation);
            continue;
        }
        printf("ok %.9f %ld %d\n", took, n, past);
        fflush(stdout);
    }
    return 0;
}
