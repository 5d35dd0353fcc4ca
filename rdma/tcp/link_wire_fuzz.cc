// Untrusted bytes of the wire: hellos, beats, and the byte streams of a receiver and a sender. The
// first byte of the input chooses. (Whole set-ups: rdma/link/link_setup_fuzz.cc.)
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "rdma/common/fault_signal.h"
#include "rdma/proof/link_wire.h"
#include "rdma/tcp/tcp_link.h"

namespace larder::rdma::inline tcp {
namespace {

void FuzzHello(const uint8_t* data, size_t size) {
  WireHello mine, theirs;
  SetText(mine.name, "mine");
  std::memcpy(static_cast<void*>(&theirs), data, std::min(size, sizeof(theirs)));
  IsHello(theirs);
  const std::string why = Disagreement(mine, theirs);
  for (const char c : why) LARDER_CHECK(c >= 0x20 && c < 0x7f, "a line of printable text");
  LARDER_CHECK(!why.empty() || theirs.plan_hash == mine.plan_hash, "another Plan is refused");
  for (const std::string& text : {Text(theirs.name), Text(theirs.cluster), Text(theirs.text)}) {
    LARDER_CHECK(text.size() <= sizeof(theirs.text), "no text is longer than its field");
  }
}

void FuzzBeat(const uint8_t* data, size_t size) {
  WireBeat beat;
  std::memcpy(static_cast<void*>(&beat), data, std::min(size, sizeof(beat)));
  IsBeat(beat);
  LARDER_CHECK(FaultOf(beat).code != sync::FaultCode::kNone, "a fault is a fault");
}

// A socket pair whose first end has the bytes to read.
struct Wire {
  Wire(const uint8_t* data, size_t size) {
    int fds[2];
    LARDER_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    ours = Descriptor(fds[0]);
    theirs = Descriptor(fds[1]);
    [[maybe_unused]] const ssize_t written = write(ours.get(), data, size);
  }
  Descriptor ours, theirs;
  FaultSignal fault;
};

void FuzzReceiver(const uint8_t* data, size_t size) {
  constexpr size_t kBytes = 50;
  Wire wire(data, size);
  TcpLink link(std::move(wire.theirs), {kBytes, 3}, LinkSide::kReceive, wire.fault);
  size_t consumed = 0;
  uint32_t expected = 0;
  while (const sync::ReceivedFrame frame = link.BeginReceive()) {
    LARDER_CHECK(frame.sequence == expected++ && frame.size_bytes <= kBytes);
    consumed += sizeof(FrameHeader);
    LARDER_CHECK(consumed + frame.size_bytes <= size,
                 "no frame is made of bytes that did not come");
    LARDER_CHECK(std::memcmp(frame.bytes, data + consumed, frame.size_bytes) == 0,
                 "the frame is what came");
    consumed += frame.size_bytes;
    link.EndReceive();
  }
}

void FuzzSender(const uint8_t* data, size_t size) {
  constexpr size_t kSlots = 3;
  Wire wire(data, size);
  TcpLink link(std::move(wire.theirs), {10, kSlots}, LinkSide::kSend, wire.fault);
  size_t sent = 0;
  while (link.BeginSend() && sent < 64) {
    link.EndSend();
    ++sent;
  }
  // A credit is the number of frames that the receiver has released so far; a number above those
  // sent is a fault.
  uint32_t largest = 0;
  for (size_t at = 0; at + sizeof(largest) <= size; at += sizeof(largest)) {
    uint32_t credit;
    std::memcpy(&credit, data + at, sizeof(credit));
    if (credit <= sent) largest = std::max(largest, credit);
  }
  LARDER_CHECK(sent <= kSlots + largest,
               "{} frames sent, {} slots, {} given back: one was reused without a credit", sent,
               kSlots, largest);
}

}  // namespace
}  // namespace larder::rdma::tcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  switch (data[0] % 4) {
    case 0:
      larder::rdma::FuzzHello(data + 1, size - 1);
      break;
    case 1:
      larder::rdma::FuzzBeat(data + 1, size - 1);
      break;
    case 2:
      larder::rdma::FuzzReceiver(data + 1, size - 1);
      break;
    case 3:
      larder::rdma::FuzzSender(data + 1, size - 1);
      break;
  }
  return 0;
}
