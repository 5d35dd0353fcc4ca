// What another process of this server may send over a control channel: packets of arbitrary bytes
// and sizes, with all kinds of descriptors. An input is a list of packets: how each is sent, its
// size (2 bytes), its bytes. For a packet that is a message with some bytes changed, the input has
// only those bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "rdma/control/control_channel.h"
#include "rdma/control/control_message.h"
#include "rdma/control/peer_monitor.h"

namespace larder::rdma::inline control {
namespace {

constexpr size_t kMemoryBytes = 8192;

int DescriptorToPass(uint8_t how) {
  static const SharedMemory good = SharedMemory::Create(kMemoryBytes, "fuzz");
  static const SharedMemory small = SharedMemory::Create(16, "fuzz");
  static const int unsealed = memfd_create("fuzz", MFD_CLOEXEC);
  static const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  switch (how % 8) {
    case 0:
      return good.fd();
    case 1:
      return small.fd();
    case 2:
      return unsealed;
    case 3:
      return null;
  }
  return -1;
}

// Sends all packets of the input from the other end. A packet that does not fit the socket's buffer
// is left out.
void SendAll(int fd, const uint8_t* data, size_t size) {
  while (size >= 3) {
    const uint8_t how = data[0];
    size_t bytes = std::min<size_t>(data[1] | size_t{data[2]} << 8, size - 3);
    data += 3, size -= 3;
    Message message;
    message.kind = static_cast<MessageKind>(1 + (how >> 3) % 8);
    message.hello.plan_hash = 1;
    message.hello.memory_bytes = kMemoryBytes;
    if (how & 0x80) {  // as it is
      bytes = std::min<size_t>(bytes, 4096);
      std::string packet(reinterpret_cast<const char*>(data), bytes);
      send(fd, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    } else {  // pairs of a place and a byte
      for (size_t i = 0; i + 3 <= bytes; i += 3)
        reinterpret_cast<uint8_t*>(
            &message)[(data[i] | size_t{data[i + 1]} << 8) % sizeof(message)] = data[i + 2];
      SendMessage(fd, message, DescriptorToPass(how));
    }
    data += bytes, size -= bytes;
  }
}

void CheckText(const std::string& line) {
  LARDER_CHECK(!line.empty() && line.size() < 1000, "a line that says what is wrong");
}

void Check(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const uint8_t order = *data;
  static const std::string name = "larder-fuzz-" + std::to_string(getpid());
  static ControlListener& listener = *new ControlListener(name, kAnyPeers);
  ControlChannel hostile = Connect(name, 1000);
  ControlChannel channel = listener.Accept(1000);
  SendAll(hostile.fd(), data + 1, size - 1);
  shutdown(hostile.fd(), SHUT_WR);
  Hello mine;
  mine.plan_hash = 1;
  mine.memory_bytes = kMemoryBytes;
  mine.SetSocketName("mine");
  try {
    if (order & 1) {
      const Hello theirs = channel.ExchangeHello(mine, 1000);
      LARDER_CHECK(theirs.plan_hash == mine.plan_hash && theirs.memory_bytes == mine.memory_bytes);
      LARDER_CHECK(std::memchr(theirs.socket_name, 0, sizeof(theirs.socket_name)) != nullptr);
    }
    if (order & 2) {
      const SharedMemory memory = channel.ReceiveMemory(kMemoryBytes, 1000);
      LARDER_CHECK(memory.bytes() == kMemoryBytes);
      volatile std::byte last = memory.data()[kMemoryBytes - 1];  // the memory can be read
      static_cast<void>(last);
    }
    if (order & 4) channel.WaitReady(1000);
    if (order & 8) {
      std::atomic<int> lost = 0;
      {
        PeerMonitor monitor(channel, [&](pid_t, PeerEnd) { ++lost; });
        // When the input ends, so does the peer, however many packets come before that.
        for (int i = 0; i < 5000 && !monitor.peer_ended(); ++i) usleep(100);
        LARDER_CHECK(monitor.peer_ended(), "the end of a peer is noticed");
      }
      LARDER_CHECK(lost <= 1, "once at most");
    }
    for (;;) {
      Message message;
      Descriptor passed;
      const Received what = ReceiveMessage(channel.fd(), &message, &passed, 1000);
      LARDER_CHECK(what != Received::kTimeout, "the end is seen");
      if (what == Received::kEnded) break;
      LARDER_CHECK(std::memchr(message.text, 0, sizeof(message.text)) != nullptr,
                   "text ends with a zero");
    }
  } catch (const Error& error) {
    CheckText(error.what());
  }
}

}  // namespace
}  // namespace larder::rdma::control

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::rdma::Check(data, size);
  return 0;
}
