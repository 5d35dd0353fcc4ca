// WaitingQueue: the sequences that wait for a slot, and in which order they get one: the shortest
// rest first, but none is overtaken for ever; those of the background stand behind all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/sequences/slot_table.h"

namespace larder::pipeline::inline sequences {

class WaitingQueue {
 public:
  // The slots must outlive it.
  explicit WaitingQueue(const SlotTable& slots) : slots_(slots) {}

  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }
  const Active& operator[](size_t i) const { return *waiting_[i]; }
  // Whether one waits that is not of the background.
  bool any_in_front() const { return !waiting_.empty() && !waiting_.front()->background; }

  // Puts a sequence there, as the first or the last of its kind.
  void Add(std::unique_ptr<Active> active, bool first);
  // The order in which those that wait get slots, as indices: the shortest rest first. Those that
  // enough others have overtaken come in front, the oldest first, so that each waits for no more
  // than these and those in front of it. Those whose own slot is taken are left out.
  std::vector<size_t> Next() const;
  // Takes out the i-th; those in front of it are overtaken.
  std::unique_ptr<Active> Take(size_t i);
  // Ends those that are cancelled, of the next kLooks: a step's time is not for thousands.
  void DropCancelled();
  // All end as kUnavailable.
  void Refuse(const std::string& why);

 private:
  static constexpr size_t kLooks = 64;

  const SlotTable& slots_;
  size_t next_look_ = 0;
  std::deque<std::unique_ptr<Active>> waiting_;  // those of the background last
};

}  // namespace larder::pipeline::sequences
