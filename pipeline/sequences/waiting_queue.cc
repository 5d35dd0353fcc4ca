#include "pipeline/sequences/waiting_queue.h"

#include <algorithm>
#include <compare>
#include <utility>

namespace larder::pipeline::inline sequences {
namespace {

// Those that wait are compared up to so many; so many may overtake one of them.
constexpr size_t kMostCompared = 64;
constexpr int kMostOvertaken = 8;

}  // namespace

void WaitingQueue::Add(std::unique_ptr<Active> active, bool first) {
  const bool background = active->background;
  const auto behind = std::ranges::partition_point(
      waiting_, [](const std::unique_ptr<Active>& waiting) { return !waiting->background; });
  waiting_.insert(first        ? (background ? behind : waiting_.begin())
                  : background ? waiting_.end()
                               : behind,
                  std::move(active));
}

std::vector<size_t> WaitingQueue::Next() const {
  struct Compared {
    bool fresh;  // not overtaken by enough others
    size_t rest, at;
    auto operator<=>(const Compared&) const = default;
  };
  const size_t slots = slots_.limits().capacity.slots;
  std::vector<Compared> compared;
  std::vector<size_t> behind;
  for (size_t i = 0; i < waiting_.size() && behind.size() < slots; ++i) {
    const Active& active = *waiting_[i];
    if (slots_.TakenSlotOf(active)) continue;
    if (active.background || compared.size() == kMostCompared) {
      behind.push_back(i);
      continue;
    }
    const bool fresh = active.overtaken < kMostOvertaken;
    compared.push_back({fresh, fresh ? slots_.RestOf(active) : 0, i});
  }
  std::ranges::sort(compared);
  std::vector<size_t> order;
  order.reserve(compared.size() + behind.size());
  for (const Compared& one : compared) order.push_back(one.at);
  order.insert(order.end(), behind.begin(), behind.end());
  order.resize(std::min(order.size(), slots));
  return order;
}

std::unique_ptr<Active> WaitingQueue::Take(size_t i) {
  std::unique_ptr<Active> active = std::move(waiting_[i]);
  for (size_t before = 0; before < i && !active->background; ++before)
    ++waiting_[before]->overtaken;
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  return active;
}

void WaitingQueue::DropCancelled() {
  for (size_t looks = std::min(kLooks, waiting_.size()); looks > 0; --looks) {
    if (next_look_ >= waiting_.size()) next_look_ = 0;
    Sequence& sequence = *waiting_[next_look_]->sequence;
    if (!sequence.cancelled()) {
      ++next_look_;
      continue;
    }
    sequence.Ended(SequenceEnd::kCancelled, "");
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(next_look_));
  }
}

void WaitingQueue::Refuse(const std::string& why) {
  for (const auto& waiting : waiting_) waiting->sequence->Ended(SequenceEnd::kUnavailable, why);
  waiting_.clear();
}

}  // namespace larder::pipeline::sequences
