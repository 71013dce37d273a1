/* The few system calls cli_filter needs, for Lua 5.1 to 5.4.
 *
 * lua-posix has them too, but opening it takes a twentieth of an sbatch; `advisor hook install`
 * compiles this where there is a C compiler, and portable.lua does the same with lua-posix
 * where there is none or this does not load. One library serves every Lua, without its headers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
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
extern int lua_type(lua_State *, int);
extern void lua_pushvalue(lua_State *, int);
extern void lua_settop(lua_State *, int);
/* 5.1 has the first, 5.2 and later have the second; a weak symbol that is missing is null. */
extern int lua_pcall(lua_State *, int, int, int) __attribute__((weak));
extern int lua_pcallk(lua_State *, int, int, int, intptr_t, lua_CFunction) __attribute__((weak));
extern const char *lua_tolstring(lua_State *, int, size_t *);
extern const char *luaL_checklstring(lua_State *, int, size_t *);
extern double luaL_checknumber(lua_State *, int);

enum { LUA_IS_FUNCTION = 6, PIECE_MS = 10 /* of waiting: see ready */ };
/* MAX_ANSWER, MAX_SCRIPT, MAX_CHOICES, MAX_VARIABLE and CUT are set by `advisor hook install`. */

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

/* Connect, in half of what is left: blocking, for the kernel lets it wait where others stand first. */
static int reach(int fd, const struct sockaddr_un *to, double *left)
{
    double half = *left / 2, before = now();
    struct timeval wait = {(time_t)half, (suseconds_t)((half - (double)(time_t)half) * 999999) + 1};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    int done = connect(fd, (const struct sockaddr *)to, sizeof *to);
    double spent = now() - before;
    *left -= spent < half ? spent : half;
    return done;
}

/* Wait for fd; 0 when what is left was not enough. Of a short piece of waiting no more than its
 * length counts: where the host stands still, or does not let this run, no daemon hangs. */
static int ready(int fd, short events, double *left)
{
    while (*left > 0) {
        double piece = PIECE_MS / 1e3, before = now();
        struct pollfd p = {fd, events, 0};
        int n = poll(&p, 1, PIECE_MS);
        double spent = now() - before;
        *left -= n >= 0 && spent < piece ? spent : piece;
        if (n > 0)
            return 1;
    }
    return 0;
}

/* Call the function at an index; what it returns, or its error, is on top then. */
static int call(lua_State *L, int index)
{
    lua_pushvalue(L, index);
    return lua_pcallk ? lua_pcallk(L, 0, 1, 0, 0, NULL) : lua_pcall(L, 0, 1, 0);
}

/* The text at an index, or what the function there returns; NULL when that fails, and why. */
static const char *line_at(lua_State *L, int index, size_t *length, const char **problem)
{
    int made = lua_type(L, index) == LUA_IS_FUNCTION, failed = made && call(L, index);
    const char *line = lua_tolstring(L, made ? -1 : index, length);
    if (failed || !line)
        *problem = line ? line : "there is no line to send";
    return failed ? NULL : line;
}

/* exchange(path, line, deadline_s, no_answer, meanwhile): see portable.lua. */
static int exchange(lua_State *L)
{
    size_t length = 0, sent = 0, got = 0;
    const char *path = luaL_checklstring(L, 1, NULL), *line = NULL;
    double left = luaL_checknumber(L, 3);
    int no_answer = lua_toboolean(L, 4);
    char answer[MAX_ANSWER];
    struct sockaddr_un to;
    const char *word = NULL, *text = "no answer in time", *end = NULL;

    lua_settop(L, 5); /* the line that is made comes to lie above */
    if (address(&to, path) < 0)
        return fail(L, "absent", "the socket's path is too long");
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(L, "absent", strerror(errno));
    if (reach(fd, &to, &left) < 0)
        text = strerror(errno), word = errno == EAGAIN || errno == EINTR ? "timeout" : "absent";
    if (!word && !(line = line_at(L, 2, &length, &text)))
        word = "error";
    while (!word && sent < length) {
        ssize_t n = send(fd, line + sent, length - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            sent += (size_t)n;
        else if (errno != EAGAIN && errno != EINTR)
            word = "closed", text = strerror(errno);
        else if (!ready(fd, POLLOUT, &left))
            word = "timeout";
    }
    for (int more = !word && lua_type(L, 5) == LUA_IS_FUNCTION; more;) {
        struct pollfd there = {.fd = fd, .events = POLLIN};
        more = !call(L, 5) && lua_toboolean(L, -1) && poll(&there, 1, 0) == 0;
        lua_settop(L, 6);
    }
    while (!word && !no_answer && !end) {
        if (got == sizeof answer) {
            word = "garbage", text = "an answer without end";
        } else if (!ready(fd, POLLIN, &left)) {
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

/* A growing text; once memory is short it stays as it is and `short_of` says so. */
struct text {
    char *data;
    size_t length, size;
    int short_of;
};

static void add(struct text *t, const char *from, size_t length)
{
    if (t->length + length > t->size) {
        size_t size = 2 * (t->length + length) + 1024;
        char *data = t->short_of ? NULL : realloc(t->data, size);
        if (!data) {
            t->short_of = 1;
            return;
        }
        t->data = data;
        t->size = size;
    }
    memcpy(t->data + t->length, from, length);
    t->length += length;
}

static void say(struct text *t, const char *from)
{
    add(t, from, strlen(from));
}

/* Add bytes as a JSON string: control characters escaped, all else as it is. */
static void quote(struct text *t, const char *from, size_t length)
{
    static const char hex[] = "0123456789abcdef";
    size_t start = 0;
    say(t, "\"");
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)from[i];
        char escaped[] = "\\u00xx";
        if (c >= 0x20 && c != 0x7f && c != '"' && c != '\\')
            continue;
        add(t, from + start, i - start);
        start = i + 1;
        escaped[4] = hex[c >> 4];
        escaped[5] = hex[c & 15];
        add(t, escaped, 6);
    }
    add(t, from + start, length - start);
    say(t, "\"");
}

/* Quote the first bytes of a regular file; -1 when it is none, 1 when there is more, else 0. A
 * FIFO or a device would wait and is not read. */
static int quote_file(struct text *t, const char *path, size_t limit)
{
    struct stat found;
    size_t got = 0;
    char *data = NULL;
    int fd = *path ? open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    if (fd < 0)
        return -1;
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) {
        if (found.st_size > 0 && found.st_size < (off_t)limit)
            limit = (size_t)found.st_size;
        data = malloc(limit + 1);
    }
    while (data && got <= limit) {
        ssize_t n = read(fd, data + got, limit + 1 - got);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        if (n > 0)
            got += (size_t)n;
    }
    close(fd);
    if (!data)
        return -1;
    quote(t, data, got > limit ? limit : got);
    free(data);
    return got > limit;
}

/* Whether a name is one of the words or, unless it has to be whole, begins like one of them. */
static int among(const char *name, size_t length, const char *words, int whole)
{
    for (size_t n; words; words = strchr(words + n, ' '), words += words != NULL) {
        for (n = 0; n < length && words[n] == name[n];)
            n++;
        if (n && (words[n] == ' ' || !words[n]) && (n == length || !whole))
            return 1;
    }
    return 0;
}

/* Whether a variable is sent although it is not named: see portable.lua. */
static int is_sent(const char *name, size_t length, const char *prefixes)
{
    static const char count[] = "_NUM_THREADS";
    size_t end = sizeof count - 1;
    if (length >= end && memcmp(name + length - end, count, end) == 0)
        return 1;
    if (among(name, length, "SLURM_JWT", 1) || among(name, length, "SLURM_SACK_", 0))
        return 0; /* those are keys */
    return among(name, length, prefixes, 0);
}

/* Add a member of an object; `comma` stands before it unless it is the first. */
static void member(struct text *t, const char **comma, const char *name, size_t length,
                   const char *value, size_t size)
{
    say(t, *comma);
    quote(t, name, length);
    say(t, ":");
    quote(t, value, size);
    *comma = ",";
}

/* request(head, script, choices, names, prefixes): see portable.lua. */
static int request(lua_State *L)
{
    size_t length;
    const char *head = luaL_checklstring(L, 1, &length);
    const char *script = luaL_checklstring(L, 2, NULL);
    const char *choices = luaL_checklstring(L, 3, NULL);
    const char *names = luaL_checklstring(L, 4, NULL);
    const char *prefixes = luaL_checklstring(L, 5, NULL);
    struct text t = {NULL, 0, 0, 0};
    char cwd[4096], full[8192] = "";
    const char *comma = "";
    size_t env;
    int more;

    if (!getcwd(cwd, sizeof cwd))
        *cwd = 0;
    if (strlen(script) < 4000) {
        if (*script && *script != '/')
            strcat(strcpy(full, cwd), "/");
        strcat(full, script);
    }
    add(&t, head, length);
    say(&t, ",\"script\":");
    more = quote_file(&t, full, MAX_SCRIPT);
    if (more < 0)
        say(&t, "null");
    say(&t, more == 1 ? ",\"truncated\":true" : ",\"truncated\":false");
    say(&t, ",\"script_path\":");
    quote(&t, full, strlen(full));
    say(&t, ",\"env\":");
    env = t.length;
    say(&t, "{");
    for (char **entry = environ; entry && *entry; entry++) {
        const char *equals = strchr(*entry, '=');
        size_t n = equals ? (size_t)(equals - *entry) : 0, size = equals ? strlen(equals + 1) : 0;
        int named = size <= MAX_VARIABLE && among(*entry, n, names, 1);
        if (n && (named || is_sent(*entry, n, prefixes)))
            member(&t, &comma, *entry, n, equals + 1, named || size < CUT ? size : CUT);
    }
    say(&t, "}");
    size_t env_end = t.length;
    say(&t, ",\"choices\":");
    length = t.length;
    if (quote_file(&t, choices, MAX_CHOICES) != 0) {
        t.length = length; /* half a file is no file */
        say(&t, "\"\"");
    }
    say(&t, ",\"cwd\":");
    quote(&t, cwd, strlen(cwd));
    say(&t, "}\n");
    if (t.short_of) {
        lua_pushnil(L);
        lua_pushnil(L);
    } else {
        lua_pushlstring(L, t.data, t.length);
        lua_pushlstring(L, t.data + env, env_end - env);
    }
    free(t.data);
    return 2;
}

/* adler32(text): its checksum in hexadecimal, as zlib's. */
static int adler32(lua_State *L)
{
    size_t length;
    const char *text = luaL_checklstring(L, 1, &length);
    unsigned long a = 1, b = 0;
    char sum[9];
    for (size_t i = 0; i < length; i++) {
        a = (a + (unsigned char)text[i]) % 65521;
        b = (b + a) % 65521;
    }
    snprintf(sum, sizeof sum, "%04lx%04lx", b, a);
    lua_pushlstring(L, sum, 8);
    return 1;
}

/* status(path): size, time of change, whether it may be run; nil for what is no regular file. */
static int status(lua_State *L)
{
    const char *path = luaL_checklstring(L, 1, NULL);
    struct stat found;
    if (stat(path, &found) < 0 || !S_ISREG(found.st_mode)) {
        lua_pushnil(L);
        return 1;
    }
    lua_pushnumber(L, (double)found.st_size);
    lua_pushnumber(L, (double)found.st_mtime);
    lua_pushboolean(L, access(path, X_OK) == 0);
    return 3;
}

/* setenv(name, value): nil takes the variable away. */
static int set_variable(lua_State *L)
{
    const char *name = luaL_checklstring(L, 1, NULL);
    const char *value = lua_tolstring(L, 2, NULL);
    lua_pushboolean(L, (value ? setenv(name, value, 1) : unsetenv(name)) == 0);
    return 1;
}

/* uid(): who runs this. */
static int uid(lua_State *L)
{
    lua_pushnumber(L, (double)geteuid());
    return 1;
}

/* at_terminal(): whether somebody reads along. */
static int at_terminal(lua_State *L)
{
    lua_pushboolean(L, isatty(2));
    return 1;
}

/* Where the circuit breaker's file is: see portable.lua. */
static const char *breaker(char path[4200])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat found;
    if (runtime && *runtime == '/' && strlen(runtime) < 4096 && lstat(runtime, &found) == 0 &&
        S_ISDIR(found.st_mode) && found.st_uid == geteuid())
        strcat(strcpy(path, runtime), "/advisor-breaker");
    else
        sprintf(path, "/tmp/advisor-breaker-%lu", (unsigned long)geteuid());
    return path;
}

/* hung(retry_s): whether the daemon hung less than so long ago. */
static int hung(lua_State *L)
{
    double retry = luaL_checknumber(L, 1), age;
    char path[4200];
    struct stat found;
    int open = 0;
    if (lstat(breaker(path), &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid()) {
        age = difftime(time(NULL), found.st_mtime);
        open = age >= -1 && age < retry;
    }
    lua_pushboolean(L, open);
    return 1;
}

/* trip(): note that the daemon hung just now. */
static int trip(lua_State *L)
{
    char path[4200];
    struct stat found;
    (void)L;
    if (lstat(breaker(path), &found) == 0 && found.st_uid == geteuid())
        unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return 0;
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
        {"request", request}, {"exchange", exchange}, {"setenv", set_variable}, {"status", status},
        {"at_terminal", at_terminal}, {"hung", hung}, {"trip", trip}, {"datagram", datagram},
        {"uid", uid}, {"adler32", adler32},
    };
    lua_createtable(L, 0, sizeof all / sizeof *all);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lua_pushcclosure(L, all[i].f, 0);
        lua_setfield(L, -2, all[i].name);
    }
    return 1;
}
