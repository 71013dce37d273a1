/* Reads or writes a file in a pattern, for file_systems.py: prints calls and their seconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 128 << 20, LARGEST = 1 << 22 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *how = argv[2];
    const int random = !!strstr(how, "random"), writes = !!strstr(how, "write");
    const int sync = !!strstr(how, "sync"), past = !!strstr(how, "direct");
    const int cold = !!strstr(how, "cold");
    const long block = strstr(how, "1m") ? 1 << 20 : 4096, blocks = SIZE / block;
    const long n = block > 4096 ? 128 : cold || past || sync ? 2000 : 20000;
    char path[4096], *buffer;
    snprintf(path, sizeof path, "%s/.files-%d", argv[1], (int)getpid());
    if (posix_memalign((void **)&buffer, 4096, LARGEST)) return 1;
    memset(buffer, 7, LARGEST);
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) return perror(path), 1;
    unlink(path);
    for (long at = 0; at < SIZE; at += LARGEST)
        if (pwrite(fd, buffer, LARGEST, at) != LARGEST) return perror(path), 1;
    fsync(fd);
    if (cold) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (past) fcntl(fd, F_SETFL, O_RDWR | O_DIRECT);
    unsigned long draw = 12345;
    long calls = 0;
    double took = 0;
    for (long i = 0; i < n; i++) {
        draw ^= draw << 13, draw ^= draw >> 7, draw ^= draw << 17;
        const long at = (random ? (long)(draw % blocks) : i % blocks) * block;
        const double begin = now();
        if ((writes ? pwrite(fd, buffer, block, at) : pread(fd, buffer, block, at)) != block)
            return perror(path), 1;
        calls++;
        if (sync) fdatasync(fd), calls++;
        took += now() - begin;
    }
    if (strstr(how, "end")) {
        const double begin = now();
        fdatasync(fd), calls++;
        took += now() - begin;
    }
    printf("%ld %.9f\n", calls, took);
    return 0;
}
