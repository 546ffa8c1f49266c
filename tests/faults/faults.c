// Preloaded into a process, makes the reads of one file go wrong in the ways a system may: what is not asked for stays as it is.
//
// FAULT_FILE names the file. FAULT_OPEN_EINVAL: it cannot be opened directly. FAULT_EINVAL_AFTER=n: its direct reads are refused
// after n of them. FAULT_SHORT=seed: reads come back short, aligned or not.
// FAULT_SHORT_BLOCKS=seed: the same, but never inside the first block. FAULT_STUCK: a direct read ends after 100 bytes.
// FAULT_EINTR: every other read is interrupted. FAULT_EIO_AT, FAULT_EOF_AT=offset: a bad byte, an early end. FAULT_HOLD=path: reads
// wait until that path exists.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef ssize_t (*pread_fn)(int, void *, size_t, off_t);
typedef int (*open_fn)(const char *, int, ...);

static atomic_int injected, n_calls, n_direct;
static atomic_uint random_state;

// For the test: a fault that never happened proves nothing.
int faults_injected(void) { return injected; }

static ssize_t fail(int number) {
    injected++;
    errno = number;
    return -1;
}

static int is_the_file(const struct stat *facts) {
    struct stat wanted;
    const char *path = getenv("FAULT_FILE");
    return path != NULL && stat(path, &wanted) == 0 && wanted.st_ino == facts->st_ino && wanted.st_dev == facts->st_dev;
}

static unsigned next_random(unsigned seed) {
    unsigned value = atomic_fetch_add(&random_state, 1) * 2654435761u + seed;
    value ^= value >> 15;
    value *= 0x85ebca6bu;
    return value ^ (value >> 13);
}

static size_t cut(size_t size, const char *seed, size_t least) {
    const unsigned random = next_random((unsigned)atoi(seed));
    if (random % 4 == 0 || size <= least) return size;
    const size_t shorter = least + random / 4 % (size - least);
    const size_t aligned = shorter / 4096 * 4096;
    injected++;
    return random % 4 == 1 && aligned > 0 ? aligned : shorter;
}

static void hold(void) {
    const char *path = getenv("FAULT_HOLD");
    const struct timespec pause = {0, 1000000};
    if (path == NULL) return;
    injected++;
    while (access(path, F_OK) != 0) nanosleep(&pause, NULL);
}

static ssize_t faulty_pread(pread_fn real, int fd, void *to, size_t size, off_t offset) {
    struct stat facts;
    if (fstat(fd, &facts) != 0 || !is_the_file(&facts)) return real(fd, to, size, offset);
    const int is_direct = (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
    const char *after = getenv("FAULT_EINVAL_AFTER"), *bad = getenv("FAULT_EIO_AT"), *end = getenv("FAULT_EOF_AT");
    hold();
    if (getenv("FAULT_EINTR") != NULL && n_calls++ % 2 == 0) return fail(EINTR);
    if (after != NULL && is_direct && n_direct++ >= atoi(after)) return fail(EINVAL);
    if (bad != NULL && offset <= atoll(bad) && atoll(bad) < offset + (off_t)size) return fail(EIO);
    const ssize_t n_read = real(fd, to, size, offset);
    size_t n = n_read > 0 ? (size_t)n_read : 0;
    if (n == 0) return n_read;
    if (getenv("FAULT_SHORT") != NULL) n = cut(n, getenv("FAULT_SHORT"), 1);
    if (getenv("FAULT_SHORT_BLOCKS") != NULL) n = cut(n, getenv("FAULT_SHORT_BLOCKS"), 4096);
    if (getenv("FAULT_STUCK") != NULL && is_direct && n > 100) n = 100, injected++;
    if (end != NULL && offset + (off_t)n > atoll(end)) n = offset < atoll(end) ? (size_t)(atoll(end) - offset) : 0, injected++;
    // what was not read must not be there by accident
    memset((char *)to + n, 0xee, (size_t)n_read - n);
    return (ssize_t)n;
}

ssize_t pread(int fd, void *to, size_t size, off_t offset) { return faulty_pread((pread_fn)dlsym(RTLD_NEXT, "pread"), fd, to, size, offset); }

ssize_t pread64(int fd, void *to, size_t size, off_t offset) { return faulty_pread((pread_fn)dlsym(RTLD_NEXT, "pread64"), fd, to, size, offset); }

static int faulty_open(open_fn real, const char *path, int flags, mode_t mode) {
    struct stat facts;
    const int is_refused = getenv("FAULT_OPEN_EINVAL") != NULL && (flags & O_DIRECT) != 0;
    if (is_refused && stat(path, &facts) == 0 && is_the_file(&facts)) return (int)fail(EINVAL);
    return real(path, flags, mode);
}

#define MODE_OF(flags)                  \
    va_list more;                       \
    va_start(more, flags);              \
    mode_t mode = va_arg(more, mode_t); \
    va_end(more)

int open(const char *path, int flags, ...) {
    MODE_OF(flags);
    return faulty_open((open_fn)dlsym(RTLD_NEXT, "open"), path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE_OF(flags);
    return faulty_open((open_fn)dlsym(RTLD_NEXT, "open64"), path, flags, mode);
}
