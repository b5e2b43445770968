// A disk that takes `SLOW_SYNC_MS` for each sync, hangs as long as the file `SLOW_SYNC_WHILE` is there, and fails as long
// as the file `SLOW_SYNC_FAILS` is, for LD_PRELOAD. `SLOW_SYNC_LOG` names a file that gets a line for each sync: the name
// of the thread that waits.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int wait_for_disk(void) {
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
    const char *hang = getenv("SLOW_SYNC_WHILE");
    const struct timespec look = {0, 10000000};
    while (hang && access(hang, F_OK) == 0) nanosleep(&look, NULL);
    const char *fails = getenv("SLOW_SYNC_FAILS");
    errno = EIO;
    return fails && access(fails, F_OK) == 0 ? -1 : 0;
}

int fdatasync(int descriptor) {
    return wait_for_disk() ? -1 : (int)syscall(SYS_fdatasync, descriptor);
}

int fsync(int descriptor) {
    return wait_for_disk() ? -1 : (int)syscall(SYS_fsync, descriptor);
}
