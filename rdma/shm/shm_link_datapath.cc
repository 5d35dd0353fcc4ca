// Waiting and failing: the parts of a ShmLink that are too rare to be inlined.
#include "rdma/shm/shm_link.h"

namespace larder::rdma::inline shm {

bool ShmLink::WaitSend(const sync::WaitPolicy& policy) {
  if (BeginSend()) return true;
  sync::WaitUntil(header_->received.count, header_->received.sleepers, policy,
                  [this](uint32_t received) {
                    return position_ - received != shape_.slots || header_->fault.raised();
                  });
  return static_cast<bool>(BeginSend());
}

bool ShmLink::WaitReceive(const sync::WaitPolicy& policy) {
  if (BeginReceive()) return true;
  sync::WaitUntil(header_->sent.count, header_->sent.sleepers, policy,
                  [this](uint32_t sent) { return sent != position_ || header_->fault.raised(); });
  return static_cast<bool>(BeginReceive());
}

// Moves both counters after the fault, so that a futex that is about to sleep on the old value does
// not. Only the first fault moves them: two moves could restore the old value. An end that is still
// running may overwrite the flipped bit; that store wakes the sleeper as well.
void ShmLink::Fail(sync::FaultCode code, uint32_t detail) {
  if (!header_->fault.Raise(code, detail)) return;
  constexpr uint32_t kMoved = 0x8000'0000u;
  for (ShmCounter* counter : {&header_->sent, &header_->received}) {
    sync::Publish(counter->count, counter->sleepers,
                  counter->count.load(std::memory_order_relaxed) ^ kMoved);
  }
}

}  // namespace larder::rdma::shm
