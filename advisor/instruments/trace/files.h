/* Reads and writes of regular files, seen from outside: how many, how large, how long.
 *
 * Defines the C library's functions so that ours are found first, and goes on to the library's
 * own. Whoever includes this says what is to be done:
 *
 *   file_access(fd, device, write, bytes, jumped, ns)   after a call; jumped: not where the last ended
 *   file_wanted()                                       0: pass calls on, look at nothing
 *
 * Streams of the C library (fread, fwrite) count by their calls, and what they keep back by the
 * call that writes it; its other functions (fprintf, fscanf, fgets) and mapped files are not seen.
 */
#ifndef ADVISOR_FILES_H
#define ADVISOR_FILES_H
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_FILES 4096

static void file_access(int fd, uint64_t device, int write, uint64_t bytes, int jumped,
                        uint64_t ns);
static int file_wanted(void);
static uint64_t watch_now(void);

static int64_t file_end[MOST_FILES]; /* where the last access with an offset ended, plus one */
static char file_moved[MOST_FILES];
static __thread int in_file_call;

/* Tell of a call that moved `bytes` (below 0: it failed); offset below 0: where the file stands. */
static void file_tell(int fd, int write, int64_t bytes, int64_t offset, uint64_t begin) {
    struct stat status;
    const uint64_t took = watch_now() - begin;
    if (bytes < 0 || fd < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode)) return;
    int jumped = 0;
    if (fd < MOST_FILES) {
        if (offset >= 0) {
            jumped = file_end[fd] != offset + 1 && file_end[fd] != 0;
            file_end[fd] = offset + bytes + 1;
        } else {
            jumped = file_moved[fd];
            file_moved[fd] = 0;
        }
    }
    file_access(fd, (uint64_t)status.st_dev, write, (uint64_t)bytes, jumped, took);
}

#define FILE_OWN(name)                                                                             \
    static __typeof__(name) *own;                                                                  \
    if (!own) own = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define SEEN(type, call, fd, is_write, bytes, offset)                                              \
    if (in_file_call || !file_wanted()) return call;                                               \
    in_file_call = 1;                                                                              \
    const uint64_t begin = watch_now();                                                            \
    const type done = call;                                                                        \
    file_tell(fd, is_write, (int64_t)(bytes), offset, begin);                                      \
    in_file_call = 0;                                                                              \
    return done

#define FILE_EXPORT __attribute__((visibility("default")))

FILE_EXPORT ssize_t read(int fd, void *to, size_t n) {
    FILE_OWN(read);
    SEEN(ssize_t, own(fd, to, n), fd, 0, done, -1);
}
FILE_EXPORT ssize_t write(int fd, const void *from, size_t n) {
    FILE_OWN(write);
    SEEN(ssize_t, own(fd, from, n), fd, 1, done, -1);
}
FILE_EXPORT ssize_t pread(int fd, void *to, size_t n, off_t at) {
    FILE_OWN(pread);
    SEEN(ssize_t, own(fd, to, n, at), fd, 0, done, at);
}
FILE_EXPORT ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
    FILE_OWN(pwrite);
    SEEN(ssize_t, own(fd, from, n, at), fd, 1, done, at);
}
FILE_EXPORT ssize_t pread64(int fd, void *to, size_t n, off64_t at) {
    FILE_OWN(pread64);
    SEEN(ssize_t, own(fd, to, n, at), fd, 0, done, at);
}
FILE_EXPORT ssize_t pwrite64(int fd, const void *from, size_t n, off64_t at) {
    FILE_OWN(pwrite64);
    SEEN(ssize_t, own(fd, from, n, at), fd, 1, done, at);
}
FILE_EXPORT ssize_t readv(int fd, const struct iovec *to, int n) {
    FILE_OWN(readv);
    SEEN(ssize_t, own(fd, to, n), fd, 0, done, -1);
}
FILE_EXPORT ssize_t writev(int fd, const struct iovec *from, int n) {
    FILE_OWN(writev);
    SEEN(ssize_t, own(fd, from, n), fd, 1, done, -1);
}
FILE_EXPORT size_t fread(void *to, size_t size, size_t n, FILE *file) {
    FILE_OWN(fread);
    SEEN(size_t, own(to, size, n, file), fileno(file), 0, done * size, -1);
}
FILE_EXPORT size_t fwrite(const void *from, size_t size, size_t n, FILE *file) {
    FILE_OWN(fwrite);
    SEEN(size_t, own(from, size, n, file), fileno(file), 1, done * size, -1);
}
/* What is written behind the program's back is waited for here, and moves no bytes of its own. */
FILE_EXPORT int fsync(int fd) {
    FILE_OWN(fsync);
    SEEN(int, own(fd), fd, 1, 0, -1);
}
FILE_EXPORT int fdatasync(int fd) {
    FILE_OWN(fdatasync);
    SEEN(int, own(fd), fd, 1, 0, -1);
}

/* Compilers call these where they know how large a buffer is. */
ssize_t __read_chk(int fd, void *to, size_t n, size_t room);
ssize_t __pread_chk(int fd, void *to, size_t n, off_t at, size_t room);
size_t __fread_chk(void *to, size_t room, size_t size, size_t n, FILE *file);
FILE_EXPORT ssize_t __read_chk(int fd, void *to, size_t n, size_t room) {
    FILE_OWN(__read_chk);
    SEEN(ssize_t, own(fd, to, n, room), fd, 0, done, -1);
}
FILE_EXPORT ssize_t __pread_chk(int fd, void *to, size_t n, off_t at, size_t room) {
    FILE_OWN(__pread_chk);
    SEEN(ssize_t, own(fd, to, n, at, room), fd, 0, done, at);
}
FILE_EXPORT size_t __fread_chk(void *to, size_t room, size_t size, size_t n, FILE *file) {
    FILE_OWN(__fread_chk);
    SEEN(size_t, own(to, room, size, n, file), fileno(file), 0, done * size, -1);
}

static void file_seek(int fd) {
    if (fd >= 0 && fd < MOST_FILES) file_moved[fd] = 1;
}
FILE_EXPORT off_t lseek(int fd, off_t by, int whence) {
    FILE_OWN(lseek);
    if (by || whence != SEEK_CUR) file_seek(fd);
    return own(fd, by, whence);
}
FILE_EXPORT off64_t lseek64(int fd, off64_t by, int whence) {
    FILE_OWN(lseek64);
    if (by || whence != SEEK_CUR) file_seek(fd);
    return own(fd, by, whence);
}
FILE_EXPORT int fseek(FILE *file, long by, int whence) {
    FILE_OWN(fseek);
    if (by || whence != SEEK_CUR) file_seek(fileno(file));
    return own(file, by, whence);
}
FILE_EXPORT int fseeko(FILE *file, off_t by, int whence) {
    FILE_OWN(fseeko);
    if (by || whence != SEEK_CUR) file_seek(fileno(file));
    return own(file, by, whence);
}
#endif
