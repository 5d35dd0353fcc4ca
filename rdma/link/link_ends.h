// One class per transport with what a FrameLink owns: the link and everything that lives as long as
// it. The members' order matters: the monitor is last, so it is destroyed before the link that it
// watches.
#pragma once

#include <memory>
#include <utility>

#include "rdma/common/fault_signal.h"
#include "rdma/common/shared_memory.h"
#include "rdma/control/control_channel.h"
#include "rdma/control/peer_monitor.h"
#include "rdma/shm/shm_link.h"
#include "rdma/tcp/link_monitor.h"
#include "rdma/tcp/tcp_link.h"
#include "rdma/verbs/verbs_link.h"

namespace larder::rdma::inline link {

class ShmEnd {
 public:
  ShmEnd(ControlChannel the_channel, SharedMemory the_memory, const LinkShape& shape,
         LinkSide side);
  ~ShmEnd();  // the destructor says goodbye
  void Fail(sync::FaultCode code, uint32_t detail) { link.Fail(code, detail); }
  sync::Fault fault() const { return link.fault(); }

  ControlChannel channel;
  SharedMemory memory;
  ShmLink link;
  PeerMonitor monitor;
};

class TcpEnd {
 public:
  TcpEnd(Descriptor control, Descriptor data, const LinkShape& shape, LinkSide side)
      : link(std::move(data), shape, side, signal),
        monitor(std::move(control), signal, link.fd()) {}
  void Fail(sync::FaultCode code, uint32_t detail) { signal.Raise(code, detail); }
  sync::Fault fault() const { return signal.Read(); }

  FaultSignal signal;
  TcpLink link;
  LinkMonitor monitor;
};

class VerbsEnd {
 public:
  VerbsEnd(Descriptor control, std::unique_ptr<VerbsResources> resources, const LinkShape& shape,
           LinkSide side, uint64_t remote_address, uint32_t remote_key);
  ~VerbsEnd();
  void Fail(sync::FaultCode code, uint32_t detail) { signal.Raise(code, detail); }
  sync::Fault fault() const { return signal.Read(); }

  FaultSignal signal;
  VerbsLink link;
  LinkMonitor monitor;
};

}  // namespace larder::rdma::link
