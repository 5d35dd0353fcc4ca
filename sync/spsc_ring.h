// SpscRing<T>: a bounded queue of values from one producer thread to one consumer thread. Neither ever
// waits, no lock; memory is allocated by the constructor only. Values are moved, and a cell that was popped
// keeps nothing of what it held. The two indices lie on lines of their own.
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
  explicit SpscRing(size_t capacity) : cells_(capacity + 1) {}

  // False, and the value is still the caller's: full.
  bool Push(T&& value) {
    const size_t tail = tail_.load(std::memory_order_relaxed);  // only we write it
    const size_t next = tail + 1 == cells_.size() ? 0 : tail + 1;
    // acquire: pairs with the release in Pop, the popper is done with that cell
    if (next == head_.load(std::memory_order_acquire)) return false;
    cells_[tail] = std::move(value);
    tail_.store(next, std::memory_order_release);  // pairs with the acquire in Pop and empty
    return true;
  }

  bool Pop(T& value) {
    const size_t head = head_.load(std::memory_order_relaxed);  // only we write it
    if (head == tail_.load(std::memory_order_acquire)) return false;
    value = std::move(cells_[head]);
    cells_[head] = T();  // what it owned must not live on in the ring
    head_.store(head + 1 == cells_.size() ? 0 : head + 1, std::memory_order_release);
    return true;
  }

  // For the popper: false only if there is something.
  bool empty() const {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire);
  }

 private:
  std::vector<T> cells_;
  alignas(kFalseSharingBytes) std::atomic<size_t> head_{0};
  alignas(kFalseSharingBytes) std::atomic<size_t> tail_{0};
};

}  // namespace larder::sync
