#include "rdma/ipc/fault_signal.h"

#include <infiniband/verbs.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace larder::rdma {

const char* LinkDownText(uint32_t detail) {
  if (detail >= VerbsFaultDetail(0)) {
    return ibv_wc_status_str(static_cast<ibv_wc_status>(detail - VerbsFaultDetail(0)));
  }
  switch (static_cast<LinkDown>(detail)) {
    case LinkDown::kEnded:
      return "it ended";
    case LinkDown::kClosed:
      return "its connection closed: it ended or crashed";
    case LinkDown::kSilent:
      return "no sign of life for more than 2 s: it is stopped or powered off, or the network between is cut";
    case LinkDown::kNetwork:
      return "the network or the device gave up";
    case LinkDown::kDataLost:
      return "its frames' connection is lost (nothing is acknowledged for more than 2 s) though it lives: a "
             "firewall or "
             "one of several cables between";
    case LinkDown::kUnknown:
      break;
  }
  return "reason unknown";
}

FaultSignal::FaultSignal() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw Error("link: no eventfd: {}: raise the limit of open files", std::strerror(errno));
}

void FaultSignal::Raise(sync::FaultCode code, uint32_t detail) {
  if (flag_.Raise(code, detail)) eventfd_write(wake_.get(), 1);
}

}  // namespace larder::rdma
