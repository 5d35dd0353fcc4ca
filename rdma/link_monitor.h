// LinkMonitor: the small TCP connection beside a TCP or verbs link, and the thread asleep on it. It sends a
// sign of life twice a second, notices within 2.5 s that the other end's have stopped (power, cable,
// SIGSTOP) and at once that it ended (however), and carries a fault of either end to the other. Neither RC
// queue pairs nor idle TCP connections notice any of that by themselves. The data path takes no part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <thread>

#include "rdma/descriptor.h"
#include "rdma/fault_signal.h"
#include "rdma/link_wire.h"

namespace larder::rdma {

class LinkMonitor {
 public:
  static constexpr int kBeatMs = 500;
  static constexpr int kSilentMs = 2500;  // five beats; with the poll's grain a fault comes within 3 s

  // Takes the connection over. signal must outlive the monitor; its faults are told to the other end, and
  // the other end's are raised in it.
  LinkMonitor(Descriptor connection, FaultSignal& signal);
  ~LinkMonitor();  // tells the other end that this one ends
  LinkMonitor(const LinkMonitor&) = delete;
  LinkMonitor& operator=(const LinkMonitor&) = delete;

 private:
  void Run();
  void Send(const internal::WireBeat& beat);
  bool ReadBeats();  // false: the connection is over

  Descriptor connection_;
  FaultSignal& signal_;
  Descriptor stop_;
  int64_t heard_ns_ = 0;
  internal::WireBeat partial_;  // partial_bytes_ of it have come
  size_t partial_bytes_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace larder::rdma
