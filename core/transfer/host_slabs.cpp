#include "transfer/host_slabs.h"

#include <limits>

namespace slotpool {
namespace {

class SlabsInMemory final : public HostSlabs {
   public:
    using HostSlabs::HostSlabs;

    void warm(int) override {}
    void begin(const WantedSlabs &) override {}
    void forget() override {}
    bool is_kept(std::int32_t) const override { return true; }
    bool wait(std::size_t, std::int32_t, std::string &) override { return true; }
    void pin(std::int32_t) override {}
    void unpin(std::int32_t) override {}
    std::size_t n_in_wave(const std::vector<std::size_t> &) const override { return std::numeric_limits<std::size_t>::max(); }
    void begin_wave(const std::vector<std::int32_t> &, const std::vector<std::size_t> &) override {}
    bool wait_for_wave(std::string &) override { return true; }
    void end_wave() override {}
    void drop_waves() override {}
    const std::uint8_t *slab(std::size_t index, std::int32_t expert) const override { return tensors_[index]->slab(expert); }
};

}  // namespace

int HostSlabs::index_of(const StoredTensor &stored) const {
    for (std::size_t index = 0; index < tensors_.size(); index++) {
        if (tensors_[index]->serial == stored.serial) return static_cast<int>(index);
    }
    return -1;
}

std::unique_ptr<HostSlabs> slabs_in_memory(StoredTensors tensors) { return std::make_unique<SlabsInMemory>(std::move(tensors)); }

}  // namespace slotpool
