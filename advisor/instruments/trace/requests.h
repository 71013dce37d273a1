/* What teams.c asks of valgrind_tool.c. */
#ifndef ADVISOR_REQUESTS_H
#define ADVISOR_REQUESTS_H

enum {
    REQUEST_FORK = ('A' << 24) | ('V' << 16), /* code: the number of this call, 0 outside valgrind */
    REQUEST_ENTER,                            /* code, call */
    REQUEST_LEAVE,                            /* code, call */
    REQUEST_BARRIER,
};
#endif
