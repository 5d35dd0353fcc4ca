// SpscRing<T>: a bounded queue of values from one producer thread to one consumer thread. It has no
// lock and neither thread ever waits. Only the constructor allocates. Values are moved; a cell that
// was popped keeps nothing of what it held. Each of the two indices has a cache line of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/memory.h"

namespace larder::sync {

template <typename T>
class SpscRing {
 public:
  explicit SpscRing(size_t capacity) : cells_(capacity + 1) {
    static_assert(Apart(offsetof(SpscRing, head_), offsetof(SpscRing, tail_)) &&
                  Apart(offsetof(SpscRing, cells_), offsetof(SpscRing, head_)));
  }

  // Returns false if the ring is full; the value is then still the caller's.
  bool Push(T&& value) {
    const size_t tail = tail_.load(std::memory_order_relaxed);  // only we write it
    const size_t next = tail + 1 == cells_.size() ? 0 : tail + 1;
    // acquire: pairs with the release in Pop; the consumer no longer uses that cell
    if (next == head_.load(std::memory_order_acquire)) return false;
    cells_[tail] = std::move(value);
    tail_.store(next, std::memory_order_release);  // pairs with the acquire in Pop and empty
    return true;
  }

  // Returns false if the ring is empty.
  bool Pop(T& value) {
    const size_t head = head_.load(std::memory_order_relaxed);  // only we write it
    if (head == tail_.load(std::memory_order_acquire)) return false;
    value = std::move(cells_[head]);
    cells_[head] = T();  // what it owned must not live on in the ring
    head_.store(head + 1 == cells_.size() ? 0 : head + 1, std::memory_order_release);
    return true;
  }

  // For the consumer: false means that Pop will succeed.
  bool empty() const {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire);
  }

 private:
  // datapath-ok: its size never changes
  std::vector<T> cells_;
  alignas(kFalseSharingBytes) std::atomic<size_t> head_{0};
  alignas(kFalseSharingBytes) std::atomic<size_t> tail_{0};
};

}  // namespace larder::sync
