// Set-up of the barrier: who waits for whom. The data path is barrier_datapath.cc.
#include "sync/barrier.h"

#include <algorithm>

#include "base/error.h"

namespace larder::sync {

TwoLevelBarrier::TwoLevelBarrier(std::span<const int> group_of_thread, WaitPolicy policy)
    : policy_(policy) {
  const size_t threads = group_of_thread.size();
  if (threads == 0) throw Error("barrier: no threads; expected at least 1");

  std::vector<int> names;  // the groups' numbers by first appearance: group 0 has thread 0
  std::vector<std::vector<size_t>> members;  // [group][i]; members[g][0] is the representative
  for (size_t t = 0; t < threads; ++t) {
    const size_t g = std::find(names.begin(), names.end(), group_of_thread[t]) - names.begin();
    if (g == names.size()) {
      names.push_back(group_of_thread[t]);
      members.emplace_back();
    }
    members[g].push_back(t);
  }
  groups_ = names.size();
  seats_ = std::vector<Seat>(threads);
  fan_ins_.resize(threads);
  flags_ = std::make_unique<EpochFlag[]>(threads + groups_ + 1);
  EpochFlag* const arrive = flags_.get();
  EpochFlag* const release = arrive + threads;
  EpochFlag* const across = release + groups_;

  for (size_t t = 0; t < threads; ++t) seats_[t].arrive = &arrive[t];
  if (groups_ == 1 && threads <= kExchangeThreads) {
    for (size_t t = 0; t < threads; ++t) {
      seats_[t].exchange = true;
      for (size_t other = 0; other < threads; ++other) {
        if (other != t) fan_ins_[t].push_back(&arrive[other]);
      }
    }
  } else {
    for (size_t g = 0; g < groups_; ++g) {
      const size_t representative = members[g][0];
      for (size_t i = 1; i < members[g].size(); ++i) {
        fan_ins_[representative].push_back(&arrive[members[g][i]]);
        seats_[members[g][i]].await_release = &release[g];
      }
      if (members[g].size() > 1) seats_[representative].group_release = &release[g];
      if (g > 0) {
        fan_ins_[0].push_back(&arrive[representative]);
        seats_[representative].await_release = across;
      }
    }
    if (groups_ > 1) seats_[0].across_release = across;
  }
  for (size_t t = 0; t < threads; ++t) {
    seats_[t].fan_in = fan_ins_[t].data();
    seats_[t].fan_in_count = static_cast<uint32_t>(fan_ins_[t].size());
  }
}

std::vector<int> TwoLevelBarrier::WaitsFor(int thread) const {
  std::vector<int> threads;
  for (const EpochFlag* flag : fan_ins_[static_cast<size_t>(thread)])
    threads.push_back(static_cast<int>(flag - flags_.get()));
  std::ranges::sort(threads);
  return threads;
}

}  // namespace larder::sync
