// Shared pages on Linux: files on a tmpfs of this user, mapped; flock says who lives.
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <locale>
#include <mutex>
#include <sstream>

#include "os/printable.h"
#include "os/shared_page.h"

namespace slotpool::os {
namespace {

constexpr int kNames = 16;       // of one process and session: pids of other namespaces may be in use in the same directory
constexpr mode_t kMode = 01600;  // the sticky bit asks cleaners of $XDG_RUNTIME_DIR to leave the file alone
constexpr int kLockTries = 100;
constexpr useconds_t kLockPauseUs = 100;
constexpr int kStartField = 20;  // of /proc/self/stat, counted after the program's name

std::string because(const std::string &what, const std::string &path) { return what + " " + printable(path) + ": " + std::string(strerror(errno)); }

std::vector<std::string> directories() {
    std::vector<std::string> found;
    const char *runtime = std::getenv("XDG_RUNTIME_DIR");
    if (runtime != nullptr && runtime[0] == '/') found.push_back(std::string(runtime) + "/slotpool");
    found.push_back("/dev/shm/slotpool-" + std::to_string(geteuid()));
    return found;
}

// In a directory that everybody may write to, somebody else may have been first: a link, or a directory that is not ours.
int open_directory(const std::string &path, std::string &error) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
        error = because("no directory", path);
        return -1;
    }
    const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat found {};
    if (directory < 0 || fstat(directory, &found) != 0) {
        error = because("cannot open", path);
    } else if (found.st_uid != geteuid() || (found.st_mode & 077) != 0) {
        error = "expected a directory that is this user's alone, found another: " + printable(path);
    } else {
        return directory;
    }
    if (directory >= 0) close(directory);
    return -1;
}

// The name that the file got is in `path`.
int create_file(const std::string &folder, const std::string &name, std::string &path, std::string &error) {
    const int directory = open_directory(folder, error);
    if (directory < 0) return -1;
    int file = -1;
    for (int i = 0; i < kNames && file < 0; i++) {
        const std::string tried = name + (i == 0 ? "" : "-" + std::to_string(i)) + ".page";
        path = folder + "/" + tried;
        file = openat(directory, tried.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (file < 0 && errno != EEXIST) break;
    }
    if (file < 0) error = because("cannot make", path);
    close(directory);
    return file;
}

// A reader that looks whether anybody has the lock has it itself for a moment.
bool lock_file(int file) {
    for (int tries = 0; tries < kLockTries; tries++) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0) return true;
        if (errno != EWOULDBLOCK && errno != EINTR) return false;
        usleep(kLockPauseUs);
    }
    return false;
}

bool may_grow_to(std::size_t bytes) {
    rlimit limit{};
    // beyond it the system would not only refuse but send a signal that ends the program
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

// A hole would be a SIGBUS of the computing thread on the day the file system is full.
int allocate(int file, std::size_t offset, std::size_t bytes) {
    for (;;) {
        const int refused = posix_fallocate(file, static_cast<off_t>(offset), static_cast<off_t>(bytes));
        if (refused != EINTR) return refused;
    }
}

// In the child: the same bytes at the same place, in memory of its own. What cannot be copied stays shared.
void unshare(void *base, std::size_t bytes) {
    void *copy = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return;
    std::memcpy(copy, base, bytes);
    mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, base);
}

}  // namespace

// Every page of the process, for its end and for its children. Never destroyed: a program may close its models after our statics
// would be gone.
struct LivePages {
    std::mutex mutex;
    std::vector<SharedPage *> pages;

    static LivePages &get() {
        static LivePages *const all = make();
        return *all;
    }
    static LivePages *make() {
        auto *const all = new LivePages;
        pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                       [] {
                           for (SharedPage *page : get().pages) page->leave_to_parent();
                           get().mutex.unlock();
                       });
        std::atexit([] {
            const std::lock_guard<std::mutex> lock(get().mutex);
            for (const SharedPage *page : get().pages) {
                if (page->file_ >= 0) unlink(page->path_.c_str());
            }
        });
        return all;
    }
};

std::unique_ptr<SharedPage> SharedPage::create(const std::string &name, std::string &error) {
    std::string reasons;
    for (const std::string &folder : directories()) {
        std::string path;
        const int file = create_file(folder, name, path, error);
        if (file >= 0) {
            std::unique_ptr<SharedPage> page(new SharedPage(file, path));
            LivePages &live = LivePages::get();
            const std::lock_guard<std::mutex> lock(live.mutex);
            live.pages.push_back(page.get());
            fchmod(file, kMode);
            if (lock_file(file)) return page;
            error = because("cannot lock", path);
            live.pages.pop_back();
            unlink(path.c_str());
        }
        reasons += (reasons.empty() ? "" : "; ") + error;
    }
    error = reasons;
    return nullptr;
}

SharedPage::~SharedPage() {
    LivePages &live = LivePages::get();
    {
        const std::lock_guard<std::mutex> lock(live.mutex);
        live.pages.erase(std::remove(live.pages.begin(), live.pages.end(), this), live.pages.end());
    }
    remove();
    for (const Part &part : parts_) munmap(part.base, part.bytes);
    if (file_ >= 0) close(file_);
}

void *SharedPage::extend(std::size_t bytes, std::string &error) {
    const std::lock_guard<std::mutex> lock(LivePages::get().mutex);
    parts_.reserve(parts_.size() + 1);
    if (file_ < 0) {
        error = "the page is the parent process's";
        return nullptr;
    }
    errno = may_grow_to(size_ + bytes) ? allocate(file_, size_, bytes) : EFBIG;
    if (errno != 0) {
        error = because("no room in", path_);
        return nullptr;
    }
    void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(size_));
    if (base == MAP_FAILED) {
        error = because("cannot map", path_);
        return nullptr;
    }
    size_ += bytes;
    parts_.push_back({base, bytes});
    return base;
}

std::size_t SharedPage::granule() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

void SharedPage::remove() {
    const std::lock_guard<std::mutex> lock(LivePages::get().mutex);
    if (file_ >= 0 && !path_.empty()) unlink(path_.c_str());
    path_.clear();
}

void SharedPage::leave_to_parent() {
    for (const Part &part : parts_) unshare(part.base, part.bytes);
    if (file_ >= 0) close(file_);  // the lock is the parent's
    file_ = -1;
}

ProcessName this_process() {
    ProcessName named;
    named.pid = static_cast<std::uint64_t>(getpid());
    std::getline(std::ifstream("/proc/self/comm"), named.program);
    std::string line;
    std::getline(std::ifstream("/proc/self/stat"), line);
    std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));  // the name before it may hold anything
    fields.imbue(std::locale::classic());                                                // the host program may group digits
    std::string skipped;
    for (int i = 1; i < kStartField; i++) fields >> skipped;
    fields >> named.started;
    return named;
}

}  // namespace slotpool::os
