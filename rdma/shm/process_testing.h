// Test support: the two ends of a pair of links between real processes. Included by tests only.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "rdma/common/fork_testing.h"
#include "rdma/common/shared_memory.h"
#include "rdma/control/control_channel.h"
#include "rdma/shm/shm_link.h"
#include "sync/wait_policies_testing.h"

namespace larder::rdma::inline shm {

using sync::kSleepAtOnce;
using sync::kSpin;

// One side of a pair of links, one per direction, set up as a program does it.
struct Shape {
  LinkShape link;
  uint32_t first_sequence = 0;
  size_t LinkBytes() const { return RoundUp(ShmLink::RegionBytes(link), kPageBytes); }
  size_t bytes() const { return 2 * LinkBytes(); }
};

struct Side {
  Side(ControlChannel&& the_channel, const Shape& shape, bool makes, const char* name)
      : channel(std::move(the_channel)) {
    Hello hello;
    hello.memory_bytes = shape.bytes();
    hello.SetSocketName(name);
    channel.ExchangeHello(hello, kLongMs);
    if (makes) {
      memory = SharedMemory::Create(shape.bytes(), "larder process test");
      ShmLink::Format(Half(shape, 0), shape.link, shape.first_sequence);
      ShmLink::Format(Half(shape, 1), shape.link, shape.first_sequence);
      channel.SendMemory(memory);
    } else {
      memory = channel.ReceiveMemory(shape.bytes(), kLongMs);
    }
    out.emplace(Half(shape, makes ? 0 : 1), shape.link, LinkSide::kSend);
    in.emplace(Half(shape, makes ? 1 : 0), shape.link, LinkSide::kReceive);
    channel.Ready();
    channel.WaitReady(kLongMs);
  }
  std::span<std::byte> Half(const Shape& shape, size_t which) {
    return memory.span().subspan(which * shape.LinkBytes(), shape.LinkBytes());
  }

  ControlChannel channel;
  SharedMemory memory;
  std::optional<ShmLink> out, in;
};

inline Side ListenSide(const std::string& name, const Shape& shape) {
  ControlListener listener(name);
  return Side(listener.Accept(kLongMs), shape, true, "weight0");
}
inline Side ConnectSide(const std::string& name, const Shape& shape) {
  return Side(Connect(name, kLongMs), shape, false, "attention0");
}

}  // namespace larder::rdma::shm
