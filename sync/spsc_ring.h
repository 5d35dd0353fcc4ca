// SpscRing<T, N>: a queue of at most N values from one producer thread to one consumer thread, without locks,
// waiting or allocation. Each side keeps a copy of the other's index and re-reads the shared one only when
// the copy says full (empty), so a ring in steady flow moves one line per value, not three.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/memory.h"

namespace larder::sync {

template <typename T, size_t N>
class SpscRing {
  static_assert(std::is_trivially_copyable_v<T>, "values are copied between threads byte by byte");
  static_assert(N >= 1 && (N & (N - 1)) == 0,
                "the capacity is a power of two, so that wrapping indices stay right");
  static_assert(N <= (size_t{1} << 31));

 public:
  static constexpr size_t kCapacity = N;

  // Producer only. False if the ring is full.
  bool TryPush(const T& value) {
    const uint32_t tail = tail_.load(std::memory_order_relaxed);  // only this thread writes it
    if (tail - head_copy_ == N) {
      // acquire: pairs with the release store of head_ in TryPop; the slot's old value has been read
      head_copy_ = head_.load(std::memory_order_acquire);
      if (tail - head_copy_ == N) return false;
    }
    slots_[tail & (N - 1)] = value;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  // Consumer only. False if the ring is empty.
  bool TryPop(T* value) {
    const uint32_t head = head_.load(std::memory_order_relaxed);  // only this thread writes it
    if (head == tail_copy_) {
      // acquire: pairs with the release store of tail_ in TryPush; the slot's value is there
      tail_copy_ = tail_.load(std::memory_order_acquire);
      if (head == tail_copy_) return false;
    }
    *value = slots_[head & (N - 1)];
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

  // Either side; exact only while the other side is quiet.
  size_t size() const {
    // head first: it can't pass tail, so the difference can't become negative
    const uint32_t head = head_.load(std::memory_order_acquire);  // pairs with the release in TryPop
    return tail_.load(std::memory_order_acquire) - head;          // pairs with the release in TryPush
  }

 private:
  alignas(kFalseSharingBytes) std::atomic<uint32_t> tail_{0};  // written by the producer
  uint32_t head_copy_ = 0;                                     // producer's
  alignas(kFalseSharingBytes) std::atomic<uint32_t> head_{0};  // written by the consumer
  uint32_t tail_copy_ = 0;                                     // consumer's
  alignas(kFalseSharingBytes) T slots_[N] = {};
};

}  // namespace larder::sync
