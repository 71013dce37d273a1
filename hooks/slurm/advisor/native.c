/* The few system calls cli_filter needs, for Lua 5.1.
 *
 * lua-posix has them too, but opening it takes a twentieth of an sbatch; `advisor hook install`
 * compiles this where there is a C compiler, and portable.lua does the same with lua-posix
 * where there is none or this does not load. No header of Lua's is needed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef struct lua_State lua_State;
typedef int (*lua_CFunction)(lua_State *);
extern void lua_createtable(lua_State *, int, int);
extern void lua_setfield(lua_State *, int, const char *);
extern void lua_pushcclosure(lua_State *, lua_CFunction, int);
extern void lua_pushlstring(lua_State *, const char *, size_t);
extern void lua_pushnumber(lua_State *, double);
extern void lua_pushboolean(lua_State *, int);
extern void lua_pushnil(lua_State *);
extern int lua_toboolean(lua_State *, int);
extern const char *lua_tolstring(lua_State *, int, size_t *);
extern const char *luaL_checklstring(lua_State *, int, size_t *);
extern double luaL_checknumber(lua_State *, int);

enum { MAX_ANSWER = 16384 };

static int fail(lua_State *L, const char *word, const char *text)
{
    lua_pushnil(L);
    lua_pushlstring(L, word, strlen(word));
    lua_pushlstring(L, text, strlen(text));
    return 3;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int address(struct sockaddr_un *to, const char *path)
{
    memset(to, 0, sizeof *to);
    to->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof to->sun_path)
        return -1;
    strcpy(to->sun_path, path);
    return 0;
}

static void bound(int fd, double seconds)
{
    struct timeval t = {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
    if (t.tv_sec == 0 && t.tv_usec == 0)
        t.tv_usec = 1; /* 0 means for ever */
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

/* Wait for fd until `finish`; 0 when it is too late. */
static int ready(int fd, short events, double finish)
{
    for (;;) {
        double left = finish - now();
        struct pollfd p = {fd, events, 0};
        if (left <= 0)
            return 0;
        int n = poll(&p, 1, (int)(left * 1000) + 1);
        if (n > 0)
            return 1;
        if (n < 0 && errno != EINTR)
            return 0;
    }
}

static int early = -1; /* a connection made before there was anything to say, or -1 */

/* knock(path): connect ahead of the question, so that the daemon wakes up meanwhile. */
static int knock(lua_State *L)
{
    struct sockaddr_un to;
    if (early >= 0 || address(&to, luaL_checklstring(L, 1, NULL)) < 0)
        return 0;
    early = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (early >= 0 && connect(early, (struct sockaddr *)&to, sizeof to) < 0) {
        close(early);
        early = -1;
    }
    return 0;
}

/* leave(): drop a connection that is not needed after all. */
static int leave(lua_State *L)
{
    (void)L;
    if (early >= 0)
        close(early);
    early = -1;
    return 0;
}

/* exchange(path, line, deadline_s, no_answer): see portable.lua. */
static int exchange(lua_State *L)
{
    size_t length, sent = 0, got = 0;
    const char *path = luaL_checklstring(L, 1, NULL);
    const char *line = luaL_checklstring(L, 2, &length);
    double deadline = luaL_checknumber(L, 3), finish = now() + deadline;
    int no_answer = lua_toboolean(L, 4);
    char answer[MAX_ANSWER];
    struct sockaddr_un to;
    const char *word = NULL, *text = "no answer in time", *end = NULL;

    if (address(&to, path) < 0)
        return fail(L, "absent", "the socket's path is too long");
    int fd = early;
    early = -1;
    if (fd < 0) {
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return fail(L, "absent", strerror(errno));
        bound(fd, deadline);
        if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
            word = errno == EAGAIN || errno == EINTR ? "timeout" : "absent";
            text = strerror(errno);
        }
    }
    while (!word && sent < length) {
        ssize_t n = send(fd, line + sent, length - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            sent += (size_t)n;
        else if (errno != EAGAIN && errno != EINTR)
            word = "closed", text = strerror(errno);
        else if (!ready(fd, POLLOUT, finish))
            word = "timeout";
    }
    while (!word && !no_answer && !end) {
        if (got == sizeof answer) {
            word = "garbage", text = "an answer without end";
        } else if (!ready(fd, POLLIN, finish)) {
            word = "timeout";
        } else {
            ssize_t n = recv(fd, answer + got, sizeof answer - got, MSG_DONTWAIT);
            if (n > 0) {
                end = memchr(answer + got, '\n', (size_t)n);
                got += (size_t)n;
            } else if (n == 0) {
                word = got ? "garbage" : "closed", text = "the daemon hung up";
            } else if (errno != EAGAIN && errno != EINTR) {
                word = "closed", text = strerror(errno);
            }
        }
    }
    close(fd);
    if (word)
        return fail(L, word, text);
    lua_pushlstring(L, answer, end ? (size_t)(end - answer) : 0);
    return 1;
}

/* read(path, limit): the first bytes of a regular file and whether there are more, else nil. */
static int read_file(lua_State *L)
{
    const char *path = luaL_checklstring(L, 1, NULL);
    size_t limit = (size_t)luaL_checknumber(L, 2), got = 0;
    struct stat found;
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0) {
        lua_pushnil(L);
        return 1;
    }
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode))
        text = malloc(limit + 1);
    if (!text) {
        close(fd);
        lua_pushnil(L);
        return 1;
    }
    while (got <= limit) {
        ssize_t n = read(fd, text + got, limit + 1 - got);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        if (n > 0)
            got += (size_t)n;
    }
    close(fd);
    lua_pushlstring(L, text, got > limit ? limit : got);
    free(text);
    lua_pushboolean(L, got > limit);
    return 2;
}

/* setenv(name, value): nil takes the variable away. */
static int set_variable(lua_State *L)
{
    const char *name = luaL_checklstring(L, 1, NULL);
    const char *value = lua_tolstring(L, 2, NULL);
    lua_pushboolean(L, (value ? setenv(name, value, 1) : unsetenv(name)) == 0);
    return 1;
}

/* look(path): kind ("file", "folder", "other"), owner and time in seconds; nil when not there. */
static int look(lua_State *L)
{
    struct stat found;
    if (lstat(luaL_checklstring(L, 1, NULL), &found) < 0) {
        lua_pushnil(L);
        return 1;
    }
    const char *kind = S_ISREG(found.st_mode) ? "file" : S_ISDIR(found.st_mode) ? "folder" : "other";
    lua_pushlstring(L, kind, strlen(kind));
    lua_pushnumber(L, (double)found.st_uid);
    lua_pushnumber(L, (double)found.st_mtime);
    return 3;
}

/* create(path): a new empty file of the user's; never through a link. */
static int create(lua_State *L)
{
    int fd = open(luaL_checklstring(L, 1, NULL), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    lua_pushboolean(L, fd >= 0);
    return 1;
}

static int remove_file(lua_State *L)
{
    lua_pushboolean(L, unlink(luaL_checklstring(L, 1, NULL)) == 0);
    return 1;
}

static int uid(lua_State *L)
{
    lua_pushnumber(L, (double)geteuid());
    return 1;
}

static int cwd(lua_State *L)
{
    char path[4096];
    const char *found = getcwd(path, sizeof path);
    lua_pushlstring(L, found ? found : "", found ? strlen(found) : 0);
    return 1;
}

/* datagram(path, text): one message, dropped when nobody takes it at once. */
static int datagram(lua_State *L)
{
    size_t length;
    struct sockaddr_un to;
    const char *path = luaL_checklstring(L, 1, NULL);
    const char *text = luaL_checklstring(L, 2, &length);
    int fd = address(&to, path) < 0 ? -1 : socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        sendto(fd, text, length, MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
        close(fd);
    }
    return 0;
}

int luaopen_advisor(lua_State *L)
{
    static const struct { const char *name; lua_CFunction f; } all[] = {
        {"knock", knock}, {"leave", leave}, {"exchange", exchange}, {"read", read_file}, {"setenv", set_variable}, {"look", look},
        {"create", create}, {"remove", remove_file}, {"uid", uid}, {"cwd", cwd},
        {"datagram", datagram},
    };
    lua_createtable(L, 0, sizeof all / sizeof *all);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lua_pushcclosure(L, all[i].f, 0);
        lua_setfield(L, -2, all[i].name);
    }
    return 1;
}
