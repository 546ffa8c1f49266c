// The RAM tier of a group in one context: slots in RAM between a disk and the pool of a device. Only what the device's pool does not have
// is asked for here, so what is used most is on the device and leaves these slots to what is used less.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/layer_pool.h"
#include "transfer/host_slabs.h"
#include "transfer/slab_waves.h"

namespace slotpool {

class RamSlabs final : public HostSlabs {
   public:
    // `pool` is over the files; `waves` are the context's, for experts that get no slot. The plan, too, outlives this.
    RamSlabs(std::unique_ptr<LayerPool> pool, SlabWaves &waves, const Plan &plan);

    void warm(int n_skipped) override;
    void begin(const WantedSlabs &wanted) override;
    void forget() override;
    bool is_kept(std::int32_t expert) const override { return lookup_of(expert) >= 0; }
    bool wait(std::size_t index, std::int32_t expert, std::string &error) override;
    void pin(std::int32_t expert) override;
    void unpin(std::int32_t expert) override { pool_->pool().unpin(expert); }
    std::size_t n_in_wave(const std::vector<std::size_t> &indices) const override { return waves_.most(tensors_, indices); }
    void begin_wave(const std::vector<std::int32_t> &experts, const std::vector<std::size_t> &indices) override {
        waves_.begin(tensors_, experts, indices);
    }
    bool wait_for_wave(std::string &error) override;
    void end_wave() override { waves_.end(); }
    void drop_waves() override { waves_.drop(); }
    const std::uint8_t *slab(std::size_t index, std::int32_t expert) const override;

   private:
    template <class Wait>
    bool timed(Wait wait);
    int lookup_of(std::int32_t expert) const;  // of the event, with a slot; negative: none

    std::unique_ptr<LayerPool> pool_;
    SlabWaves &waves_;
    const Plan &plan_;
    std::uint64_t n_events_ = 0;
};

}  // namespace slotpool
