// A file in memory that other processes of this user may look into while we write: what depends on the operating system about it
// is only here.
//
// It lies in a directory of this user's own, and goes with us: removed when it is closed and at normal exit. The owner holds a
// lock on it for as long as it lives, so that a reader can tell what a killed process left behind. A child that this process forks
// gets a copy of the bytes for itself, and neither the file nor the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace slotpool::os {

class SharedPage {
   public:
    // An empty file whose name begins with `name`. nullptr and why in `error` when there is no place for it.
    static std::unique_ptr<SharedPage> create(const std::string &name, std::string &error);
    // Unmaps: nobody may use the memory any more.
    ~SharedPage();
    SharedPage(const SharedPage &) = delete;
    SharedPage &operator=(const SharedPage &) = delete;

    // `bytes`, a multiple of granule(), more at the end of the file: zero, mapped, and sure to be there. What was given before
    // stays where it is. nullptr and why in `error` when the system refuses.
    void *extend(std::size_t bytes, std::string &error);
    static std::size_t granule();
    // Takes the file from its directory: no reader finds it any more, the memory stays.
    void remove();

   private:
    struct Part {
        void *base;
        std::size_t bytes;
    };
    SharedPage(int file, std::string path) : file_(file), path_(std::move(path)) {}
    void leave_to_parent();
    friend struct LivePages;

    int file_;  // -1: in a forked child
    std::string path_;
    std::vector<Part> parts_;
    std::size_t size_ = 0;
};

// What names this process: its pid, when it started (clock ticks since the system did), what it is called.
struct ProcessName {
    std::uint64_t pid = 0;
    std::uint64_t started = 0;
    std::string program;
};
ProcessName this_process();

}  // namespace slotpool::os
