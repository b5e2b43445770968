// A wall clock that somebody sets, for LD_PRELOAD: the file `SHIFT_CLOCK` has the nanoseconds that it is ahead, as text.
#define _GNU_SOURCE
#include <stdlib.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    const int status = (int)syscall(SYS_clock_gettime, clock, time);
    const char *path = getenv("SHIFT_CLOCK");
    FILE *file = clock == CLOCK_REALTIME && status == 0 && path ? fopen(path, "re") : NULL;
    long long ahead = 0;
    if (file) {
        if (fscanf(file, "%lld", &ahead) != 1) ahead = 0;
        fclose(file);
    }
    const long long sum = time->tv_sec * 1000000000LL + time->tv_nsec + ahead;
    if (ahead) *time = (struct timespec){sum / 1000000000LL, sum % 1000000000LL};
    return status;
}
