// The messages of a control channel, and functions that send and receive them. A message is one
// packet; all have the same size. Used by control_*.cc and peer_monitor.cc only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "rdma/control/control_channel.h"
#include "rdma/proof/link_gate.h"
#include "rdma/proof/link_wire.h"

namespace larder::rdma::inline control {

enum class MessageKind : uint32_t {
  kHello = 1,
  kMemory,  // comes with a descriptor
  kReady,
  kBye,
  kRefused,  // text says why
  kAlive,    // a PeerMonitor's sign of life
  kStopped,  // a PeerMonitor's farewell: its process has been told to end
};

struct Message {
  uint64_t magic = kHelloMagic;
  MessageKind kind = MessageKind::kHello;
  uint32_t reserved = 0;
  Hello hello;
  char text[160] = {};          // zero-terminated
  uint8_t mac[kMacBytes] = {};  // hellos: MAC of all before it by the session's key
                                // (rdma/proof/link_proof.h)

  void SetText(std::string_view what);  // cuts a text that is too long
};
static_assert(sizeof(Message) == 320 && std::is_trivially_copyable_v<Message>);

// Sends one message, with a descriptor if passed_fd is not -1. Returns false if the peer is gone
// (errno).
bool SendMessage(int fd, const Message& message, int passed_fd = -1);
void SendRefusal(int fd, std::string_view why);
bool SendBytes(int fd, const void* bytes, size_t count);  // a packet that is not a Message

// The gate of a control channel, and its answer to a guest (control_listener.cc).
inline constexpr const char* kOtherSession =
    "it has given up that attempt to connect and begun another";
LinkGate::Setup ShmGateSetup(const std::string& what, const LinkKey& key);
bool AnswerGuest(const Guest& guest, const Hello& mine, uint64_t session, ControlChannel& channel,
                 Hello* theirs, std::string* why);

enum class Received {
  kMessage,
  kTimeout,
  kEnded,    // the peer's end is closed
  kForeign,  // a packet that Larder does not send
};
// Waits up to timeout_ms (kNoTimeout: for ever) for one message. passed: gets a descriptor that
// came with it.
Received ReceiveMessage(int fd, Message* message, Descriptor* passed, int timeout_ms);

// Receives a packet of `count` bytes that is not a Message: a part of the proof, which comes before
// the first message. kMessage: a Message came instead (a refusal); kForeign: neither came.
enum class Answer { kAnswer, kMessage, kTimeout, kEnded, kForeign };
Answer ReceiveAnswer(int fd, void* answer, size_t count, Message* message, int timeout_ms);

// poll() for reading that signals do not interrupt. Returns false at the timeout.
bool WaitReadable(int fd, int timeout_ms);

}  // namespace larder::rdma::control
