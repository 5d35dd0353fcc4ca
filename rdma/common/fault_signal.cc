#include "rdma/common/fault_signal.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace larder::rdma::inline common {

FaultSignal::FaultSignal() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_)
    throw Error("link: no eventfd: {}: raise the limit of open files", std::strerror(errno));
}

void FaultSignal::Raise(sync::FaultCode code, uint32_t detail) {
  if (flag_.Raise(code, detail)) eventfd_write(wake_.get(), 1);
}

}  // namespace larder::rdma::common
