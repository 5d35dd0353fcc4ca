// SlotQueue: a FIFO of slots, each in it at most once. It never allocates.
#pragma once

#include <cstddef>
#include <vector>

#include "base/ids.h"

namespace larder::pipeline::inline sequences {

class SlotQueue {
 public:
  explicit SlotQueue(size_t slots) : slots_(slots) {}
  size_t size() const { return count_; }
  void push_back(SlotId slot) { at(count_++) = slot; }
  SlotId pop_front() {
    const SlotId slot = at(0);
    first_ = (first_ + 1) % slots_.size();
    --count_;
    return slot;
  }
  void Remove(SlotId slot) {
    size_t kept = 0;
    for (size_t i = 0; i < count_; ++i) {
      if (at(i) != slot) at(kept++) = at(i);
    }
    count_ = kept;
  }

 private:
  SlotId& at(size_t i) { return slots_[(first_ + i) % slots_.size()]; }
  std::vector<SlotId> slots_;  // its capacity: all slots
  size_t first_ = 0, count_ = 0;
};

}  // namespace larder::pipeline::sequences
