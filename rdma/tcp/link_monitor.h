// LinkMonitor: the small TCP connection beside a TCP or verbs link, and the thread asleep on it. It sends a
// sign of life twice a second, notices within 2.5 s that the other end's have stopped (power, cable,
// SIGSTOP) and at once that it ended (however), and carries a fault of either end to the other. Neither RC
// queue pairs nor idle TCP connections notice any of that by themselves. The data path takes no part.
//
// A TCP link's second connection goes another way through the network (a member of a bundle of cables, a
// firewall's table of connections) and can be lost while the first one lives. TCP itself would try again for
// some 15 minutes. So with each sign of life the monitor asks the kernel: something was sent (data again, or
// a keepalive's probe) and for 2 s nothing has been acknowledged. A receiver that lives and does not read,
// its window closed, acknowledges; that is why it is not left to TCP_USER_TIMEOUT (rdma/proof/tcp_socket.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <thread>

#include "rdma/ipc/descriptor.h"
#include "rdma/ipc/fault_signal.h"
#include "rdma/proof/link_wire.h"

namespace larder::rdma {

class LinkMonitor {
 public:
  static constexpr int kBeatMs = 500;
  static constexpr int kSilentMs = 2500;  // five beats; with the poll's grain a fault comes within 3 s
  static constexpr int kLostMs = 2000;    // without acknowledgement, seen by two beats

  // Takes the connection over. signal must outlive the monitor; its faults are told to the other end, and
  // the other end's are raised in it. data_fd: a TCP link's second connection, which outlives the monitor.
  LinkMonitor(Descriptor connection, FaultSignal& signal, int data_fd = -1);
  ~LinkMonitor();  // tells the other end that this one ends
  LinkMonitor(const LinkMonitor&) = delete;
  LinkMonitor& operator=(const LinkMonitor&) = delete;

 private:
  void Run();
  void Send(const internal::WireBeat& beat);
  bool ReadBeats();  // some of them; false: the connection is over
  void LookAtData();

  Descriptor connection_;
  FaultSignal& signal_;
  Descriptor stop_;
  const int data_fd_;
  int lost_looks_ = 0;  // in a row
  int64_t heard_ns_ = 0;
  internal::WireBeat partial_;  // partial_bytes_ of it have come
  size_t partial_bytes_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace larder::rdma
