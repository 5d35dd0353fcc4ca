// Passes each frame to its transport: one well-predicted branch, no virtual call.
#include "base/check.h"
#include "rdma/link/frame_link.h"
#include "rdma/link/link_ends.h"

namespace larder::rdma::inline link {

template <typename Visitor>
auto FrameLink::OnEnd(Visitor visit) const {
  if (const auto* shm = std::get_if<1>(&end_)) return visit(**shm);
  if (const auto* tcp = std::get_if<2>(&end_)) return visit(**tcp);
  const auto* verbs = std::get_if<3>(&end_);
  LARDER_CHECK(verbs != nullptr, "a FrameLink that is no link is used");
  return visit(**verbs);
}

sync::SendSlot FrameLink::BeginSend() {
  return OnEnd([](auto& end) { return end.link.BeginSend(); });
}
void FrameLink::EndSend(size_t size_bytes) {
  OnEnd([=](auto& end) { end.link.EndSend(size_bytes); });
}
sync::ReceivedFrame FrameLink::BeginReceive() {
  return OnEnd([](auto& end) { return end.link.BeginReceive(); });
}
void FrameLink::EndReceive() {
  OnEnd([](auto& end) { end.link.EndReceive(); });
}
bool FrameLink::WaitSend(const sync::WaitPolicy& policy) {
  return OnEnd([&](auto& end) { return end.link.WaitSend(policy); });
}
bool FrameLink::WaitReceive(const sync::WaitPolicy& policy) {
  return OnEnd([&](auto& end) { return end.link.WaitReceive(policy); });
}
void FrameLink::Fail(sync::FaultCode code, uint32_t detail) {
  OnEnd([=](auto& end) { end.Fail(code, detail); });
}
sync::Fault FrameLink::fault() const {
  return OnEnd([](const auto& end) { return end.fault(); });
}

}  // namespace larder::rdma::link
