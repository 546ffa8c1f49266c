// Where the counters of a session are: on a page that other processes read, or in ordinary memory where there can be none.
//
// Nobody who counts sees a difference. The facts beside the counters (slots, reasons, what is in the store) are written here by the
// session for readers outside; inside the process the session is asked.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "os/shared_page.h"
#include "plan/plan.h"
#include "stats/page.h"
#include "stats/stats.h"

namespace slotpool {

class FileStore;

// The counters of one context, one entry per planned group.
class ContextCounts {
   public:
    class Groups {
       public:
        Groups(GroupCounts *first, std::size_t n) : first_(first), n_(n) {}
        GroupCounts &operator[](std::size_t group) { return first_[group]; }
        GroupCounts *begin() const { return first_; }
        GroupCounts *end() const { return first_ + n_; }
        std::size_t size() const { return n_; }

       private:
        GroupCounts *first_;
        std::size_t n_;
    };

    ContextCounts(GroupCounts *on_page, std::size_t n_groups) : groups(on_page, n_groups) {}
    explicit ContextCounts(std::size_t n_groups) : groups(nullptr, n_groups), own_(new GroupCounts[n_groups]) { groups = {own_.get(), n_groups}; }

    Groups groups;

   private:
    std::unique_ptr<GroupCounts[]> own_;
};

class SessionPage {
   public:
    SessionPage(const Plan &plan, int session);
    SessionPage(const SessionPage &) = delete;
    SessionPage &operator=(const SessionPage &) = delete;

    // Readers may look, and, after hide(), find it no more. The counters stay where they are.
    void publish();
    void hide();
    // Why other processes cannot see the counters, or not all of them; empty when they can.
    std::string why_off() const;

    std::unique_ptr<ContextCounts> add_context();
    void count_reset();

    // ---- devices, in the order in which the plan's groups name them ----
    std::size_t n_devices() const { return device_names_.size(); }
    const std::string &device_name(int device) const { return device_names_[static_cast<std::size_t>(device)]; }
    DeviceMemory &device(int index) { return *devices_[static_cast<std::size_t>(index)]; }
    const DeviceMemory &device(int index) const { return *devices_[static_cast<std::size_t>(index)]; }
    // The device of that name, or -1.
    int find_device(const std::string &name) const;
    // What pools may take of the device, and what it had when they took it. Bytes.
    void set_device(int index, std::uint64_t budget, std::uint64_t free);

    // ---- facts for readers outside ----
    void set_slots(const std::vector<int> &slots);  // by group; negative: as planned
    void set_group_device(int group, const std::string &name);
    void set_off_reason(int group, const std::string &reason);
    void set_stored(const PlannedTensor &tensor, bool is_stored);
    void set_repacked(const PlannedTensor &tensor);
    // Follows why the files are not read directly, from now on. The files must not outlive this.
    void watch(const FileStore &files);

   private:
    void collect_devices();
    void open(int session);
    void describe(int session);
    void describe_tensors();
    GroupCounts *context_on_page();
    void turn_off(const std::string &reason);
    // Changes facts on the page, if there is one.
    template <class Write>
    void change(Write write) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (page_) page_->change(write);
    }

    const Plan &plan_;
    std::vector<std::string> device_names_;
    std::vector<DeviceMemory *> devices_;  // on the page, or `own_devices_`
    std::unique_ptr<DeviceMemory[]> own_devices_;
    PageSizes sizes_;
    mutable std::mutex mutex_;  // of everything below; taken last
    std::unique_ptr<os::SharedPage> file_;
    std::unique_ptr<StatsPage> page_;
    std::string why_off_;
};

}  // namespace slotpool
