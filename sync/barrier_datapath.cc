// The data path of the barrier. The flags alone carry visibility: each Signal releases what its
// thread wrote and what that thread has itself acquired, and each wait acquires. By transitivity,
// every thread sees what all threads wrote.
#include "sync/barrier.h"

namespace larder::sync {

void TwoLevelBarrier::WaitAll(EpochFlag* const* flags, uint32_t count, uint32_t epoch) {
  // One round loads all flags independently, so that their cache misses overlap. Polling them one
  // after the other would pay a full hand-over for each.
  const bool spin = policy_.mode == WaitPolicy::Mode::kSpin;
  for (uint32_t i = 0; spin || i < HostMachine::kEagerPolls + policy_.spin_iterations; ++i) {
    bool all = true;
    for (uint32_t f = 0; f < count; ++f) all &= flags[f]->Reached(epoch);
    if (all) return;
    if (i >= HostMachine::kEagerPolls) CpuPause();
  }
  // The spin is used up: sleep on each flag in turn, without spinning again for each.
  const WaitPolicy sleep{WaitPolicy::Mode::kAdaptive, 0};
  for (uint32_t f = 0; f < count; ++f) flags[f]->Wait(epoch, sleep);
}

void TwoLevelBarrier::Wait(int thread) {
  Seat& seat = seats_[static_cast<size_t>(thread)];
  const uint32_t epoch = ++seat.epoch;
  if (seat.exchange) {
    // A neighbour may already be one epoch ahead and have overwritten its flag; the test is "at
    // least", so it still holds. A neighbour cannot be two epochs ahead, since it needs this
    // thread's flag for that.
    seat.arrive->Signal(epoch, policy_.mode);
    WaitAll(seat.fan_in, seat.fan_in_count, epoch);
    return;
  }
  if (seat.fan_in_count != 0) WaitAll(seat.fan_in, seat.fan_in_count, epoch);
  if (seat.await_release != nullptr) {
    seat.arrive->Signal(epoch, policy_.mode);
    seat.await_release->Wait(epoch, policy_);
  }
  if (seat.across_release != nullptr) seat.across_release->Signal(epoch, policy_.mode);
  if (seat.group_release != nullptr) seat.group_release->Signal(epoch, policy_.mode);
}

}  // namespace larder::sync
