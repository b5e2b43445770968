// A disk that takes `SLOW_SYNC_MS` for each sync, for LD_PRELOAD. `SLOW_SYNC_LOG` names a file that gets a line for
// each: the name of the thread that waits.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(void) {
    char name[18] = "";
    prctl(PR_GET_NAME, name);
    strcat(name, "\n");
    const char *path = getenv("SLOW_SYNC_LOG");
    int log = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (log >= 0) {
        if (write(log, name, strlen(name)) < 0) abort();
        close(log);
    }
    const char *ms = getenv("SLOW_SYNC_MS");
    const struct timespec pause = {0, ms ? 1000000L * atoi(ms) : 0};
    nanosleep(&pause, NULL);
}

int fdatasync(int descriptor) {
    wait_for_disk();
    return (int)syscall(SYS_fdatasync, descriptor);
}

int fsync(int descriptor) {
    wait_for_disk();
    return (int)syscall(SYS_fsync, descriptor);
}
