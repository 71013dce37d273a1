/* A program that reports how it was started: app [SECONDS | fail]
 *
 * Each process appends one JSON line to the file `.reports` of its working directory or of a
 * folder above: ids of job and step, rank, node, threads, CPUs, when it ran and its environment.
 * It reads no setting of its own, so that it reports the same with any environment.
 *
 * Called `pool` or `uncounted` it is what many Python programs are: a process that starts workers,
 * shares the CPUs of the node among them where OMP_NUM_THREADS is unset, and otherwise leaves each
 * of them as many threads as that says. It reports how many threads all its workers really have.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static const char *get(const char *name, const char *otherwise)
{
	const char *value = getenv(name);
	return value ? value : otherwise;
}

static void put(FILE *out, const char *text, size_t length)
{
	fputc('"', out);
	for (size_t i = 0; i < length && text[i]; i++) {
		unsigned char c = text[i];
		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 32 || c > 126)
			fprintf(out, "\\u%04x", c);
		else
			fputc(c, out);
	}
	fputc('"', out);
}

static void field(FILE *out, const char *name, const char *value)
{
	fprintf(out, "\"%s\": ", name);
	put(out, value, strlen(value));
	fputs(", ", out);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int open_reports(void)
{
	char path[PATH_MAX] = ".reports";
	for (int up = 0; up < 4; up++) {
		int file = open(path, O_WRONLY | O_APPEND);
		if (file >= 0)
			return file;
		memmove(path + 3, path, strlen(path) + 1);
		memcpy(path, "../", 3);
	}
	return -1;
}

enum { WORKERS = 7, MOST_THREADS = 128 };

static void *wait_for_ever(void *unused)
{
	(void)unused;
	for (;;)
		pause();
	return NULL;
}

/* A worker: starts the threads that its variable says and returns how many it then has. */
static int work(void)
{
	int threads = atoi(get("OMP_NUM_THREADS", "1"));
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	for (int i = 1; i < threads && i < MOST_THREADS; i++) {
		pthread_t thread;
		if (pthread_create(&thread, &small, wait_for_ever, NULL))
			return 0;
	}
	int count = 0;
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	while (status && fgets(line, sizeof line, status))
		sscanf(line, "Threads: %d", &count);
	return count;
}

/* Start the workers one after the other; returns how many threads they have together. */
static int pool(void)
{
	int total = 0, status;
	char share[16];
	snprintf(share, sizeof share, "%d", atoi(get("SLURM_CPUS_ON_NODE", "28")) / WORKERS);
	for (int i = 0; i < WORKERS; i++) {
		pid_t worker = fork();
		if (worker == 0) {
			setenv("OMP_NUM_THREADS", strcmp(share, "0") ? share : "1", 0);
			_exit(work());
		}
		if (worker < 0 || waitpid(worker, &status, 0) != worker || !WEXITSTATUS(status))
			return -1;
		total += WEXITSTATUS(status);
	}
	return total;
}

int main(int argc, char **argv)
{
	double start = now();
	const char *what = argc > 1 ? argv[1] : "";
	double seconds = atof(what);
	if (seconds > 0)
		usleep((useconds_t)(seconds * 1e6));

	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	const char *slash = strrchr(argv[0], '/');
	const char *name = slash ? slash + 1 : argv[0];
	int has_workers = !strcmp(name, "pool") || !strcmp(name, "uncounted");
	int in_step = getenv("SLURM_STEP_ID") != NULL;
	const char *rank = get("PMI_RANK", in_step ? get("SLURM_PROCID", "0") : "0");
	fputc('{', out);
	field(out, "program", name);
	field(out, "argument", what);
	field(out, "job", get("SLURM_JOB_ID", ""));
	field(out, "task", get("SLURM_ARRAY_TASK_ID", ""));
	field(out, "step", in_step ? getenv("SLURM_STEP_ID") : "batch");
	field(out, "rank", rank);
	field(out, "size", get("PMI_SIZE", in_step ? get("SLURM_STEP_NUM_TASKS", "1") : "1"));
	field(out, "node", get("SLURMD_NODENAME", ""));
	field(out, "local", get("SLURM_LOCALID", "0"));
	field(out, "threads", get("OMP_NUM_THREADS", ""));
	field(out, "bound", in_step ? get("SLURM_CPU_BIND_LIST", "") : "");
	fprintf(out, "\"workers_threads\": %d, ", has_workers ? pool() : 0);
	fprintf(out, "\"start\": %.3f, \"end\": %.3f, \"environment\": {", start, now());
	if (!strcmp(rank, "0"))
		for (char **e = environ; *e; e++) {
			const char *equals = strchr(*e, '=');
			if (!equals)
				continue;
			put(out, *e, equals - *e);
			fputs(": ", out);
			put(out, equals + 1, strlen(equals + 1));
			if (e[1])
				fputs(", ", out);
		}
	fputs("}}\n", out);
	fclose(out);
	int file = open_reports();
	if (file < 0 || write(file, text, size) != (ssize_t)size)
		return 99; /* one write: lines of many processes never mix */
	if (!strcmp(rank, "0")) {
		printf("%s ran with %s ranks\n", name,
		       get("PMI_SIZE", in_step ? get("SLURM_STEP_NUM_TASKS", "1") : "1"));
		fflush(stdout);
	}
	return strcmp(what, "fail") ? 0 : 3;
}
