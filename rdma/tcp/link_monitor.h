// LinkMonitor: the small TCP connection beside a TCP or verbs link, and the thread that sleeps on
// it. It sends a sign of life twice per second. It notices within 2.5 s that the other end's signs
// of life have stopped (power, cable, SIGSTOP), and at once that the other process ended, however
// it died. It also carries a fault of either end to the other. Neither RC queue pairs nor idle TCP
// connections notice these events by themselves. The data path is not involved.
//
// A TCP link's second connection may take another path through the network (another cable of a
// bundle, another entry in a firewall's table of connections) and can be lost while the first one
// lives. TCP itself would retry for some 15 minutes. So with each sign of life the monitor asks the
// kernel whether something was sent (data again, or a keepalive probe) and nothing has been
// acknowledged for 2 s. A receiver that is alive but does not read still acknowledges while its
// window is closed; TCP_USER_TIMEOUT would end that connection and is therefore not used
// (rdma/proof/tcp_connection.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "base/descriptor.h"
#include "rdma/common/farewell.h"
#include "rdma/common/fault_signal.h"
#include "rdma/proof/link_wire.h"

namespace larder::rdma::inline tcp {

class LinkMonitor {
 public:
  static constexpr int kBeatMs = 500;
  static constexpr int kSilentMs = 2500;  // five beats; the fault is raised within 3 s, as poll()
                                          // is coarse
  static constexpr int kLostMs = 2000;    // without acknowledgement, at two successive beats

  // Takes ownership of the connection. `signal` must outlive the monitor; its faults are sent to
  // the other end, and the other end's faults are raised in it, until this process has said
  // farewell. data_fd: a TCP link's second connection, which must outlive the monitor.
  LinkMonitor(Descriptor connection, FaultSignal& signal, int data_fd = -1);
  ~LinkMonitor();  // tells the other end that this one ends
  LinkMonitor(const LinkMonitor&) = delete;
  LinkMonitor& operator=(const LinkMonitor&) = delete;

 private:
  void Run();
  void Send(const WireBeat& beat);
  void SendFault(const sync::Fault& fault);
  bool ReadBeats();  // reads the beats that have arrived; false: the connection has ended
  void LookAtData();

  Descriptor connection_;
  FaultSignal& signal_;
  Descriptor stop_;
  const int data_fd_;
  int lost_looks_ = 0;  // in a row
  int64_t heard_ns_ = 0;
  WireBeat partial_;  // the beat of which partial_bytes_ have arrived
  size_t partial_bytes_ = 0;
  std::atomic<bool> said_farewell_{false};
  const Farewell farewell_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace larder::rdma::tcp
