/* Preloaded into a program that runs under valgrind: tells our tool of its parallel regions. */
#define _GNU_SOURCE
#include "regions.h"
#include "requests.h"
#include <valgrind/valgrind.h>

static int team_fork(struct team *team) {
    team->call = VALGRIND_DO_CLIENT_REQUEST_EXPR(0, REQUEST_FORK, team->code, 0, 0, 0, 0);
    return team->call != 0;
}

static void team_enter(struct team *team) {
    VALGRIND_DO_CLIENT_REQUEST_STMT(REQUEST_ENTER, team->code, team->call, 0, 0, 0);
}

static void team_leave(struct team *team) {
    VALGRIND_DO_CLIENT_REQUEST_STMT(REQUEST_LEAVE, team->code, team->call, 0, 0, 0);
}

static void team_join(struct team *team) { (void)team; }

static void team_barrier(void) {
    VALGRIND_DO_CLIENT_REQUEST_STMT(REQUEST_BARRIER, 0, 0, 0, 0, 0);
}

static void team_dynamic(void) {}

static void team_call(const void *site) { (void)site; }
