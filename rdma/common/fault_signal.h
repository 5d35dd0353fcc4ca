// FaultSignal: a link end's fault flag, together with an eventfd that becomes readable with the
// first fault and stays so. The data path reads the flag; threads that sleep in poll() and the
// LinkMonitor also watch fd(). Any thread may raise it.
#pragma once

#include "base/descriptor.h"
#include "sync/fault.h"

namespace larder::rdma::inline common {

// Details of a kLinkDown fault: how the link was lost.
enum class LinkDown : uint32_t {
  kUnknown = 0,
  kEnded,     // the other end said that it ends
  kClosed,    // its connection closed: it ended or crashed
  kSilent,    // no sign of life for LinkMonitor::kSilentMs, on one server kSilenceMs
  kNetwork,   // the network or the device reported an error
  kDataLost,  // the frames' connection gets no acknowledgement, though the control connection lives
  kStopped,   // the other end's process has been told to end (rdma/common/farewell.h)
};
// The fault detail of a verbs completion that failed; status: ibv_wc_status.
constexpr uint32_t VerbsFaultDetail(uint32_t status) { return 0x100 + status; }
// Whether a socket was lost because somebody stopped it: no fault of anything.
constexpr bool WasStopped(const sync::Fault& fault) {
  return fault.code == sync::FaultCode::kRankStopped ||
         (fault.code == sync::FaultCode::kLinkDown &&
          fault.detail == static_cast<uint32_t>(LinkDown::kStopped));
}

class FaultSignal {
 public:
  FaultSignal();  // Error if the process may not open another descriptor
  FaultSignal(const FaultSignal&) = delete;
  FaultSignal& operator=(const FaultSignal&) = delete;

  void Raise(sync::FaultCode code, uint32_t detail);
  void Raise(LinkDown how) { Raise(sync::FaultCode::kLinkDown, static_cast<uint32_t>(how)); }
  sync::Fault Read() const { return flag_.Read(); }
  bool raised() const { return flag_.raised(); }
  int fd() const { return wake_.get(); }

 private:
  sync::FaultFlag flag_;
  Descriptor wake_;
};

}  // namespace larder::rdma::common
