// What travels over a control channel: one packet per message, all of one size, and how it is sent and
// received. Used by control_*.cc and peer_monitor.cc only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "rdma/control/control_channel.h"
#include "rdma/proof/link_gate.h"
#include "rdma/proof/link_wire.h"

namespace larder::rdma::internal {

enum class MessageKind : uint32_t {
  kHello = 1,
  kMemory,  // comes with a descriptor
  kReady,
  kBye,
  kRefused,  // text says why
  kAlive,    // a PeerMonitor's sign of life
};

struct Message {
  uint64_t magic = kHelloMagic;
  MessageKind kind = MessageKind::kHello;
  uint32_t reserved = 0;
  Hello hello;
  char text[160] = {};          // ended by a zero
  uint8_t mac[kMacBytes] = {};  // of hellos: by the session's key, of all before it (rdma/proof/link_proof.h)

  void SetText(std::string_view what);  // cut if it is too long
};
static_assert(sizeof(Message) == 320 && std::is_trivially_copyable_v<Message>);

// Sends one message, with a descriptor if passed_fd is not -1. False if the peer has gone (errno says how).
bool Send(int fd, const Message& message, int passed_fd = -1);
void Refuse(int fd, std::string_view why);
bool SendBytes(int fd, const void* bytes, size_t count);  // a packet that is no message

// The gate of a control channel, and what it says to a guest (control_listener.cc).
inline constexpr const char* kOtherSession = "it has given up that attempt to connect and begun another";
LinkGate::Setup ShmGateSetup(const std::string& what, const LinkKey& key);
bool AnswerGuest(const Guest& guest, const Hello& mine, uint64_t session, ControlChannel& channel,
                 Hello* theirs, std::string* why);

enum class Received {
  kMessage,
  kTimeout,
  kEnded,    // the peer's end is closed
  kForeign,  // a packet that no Larder sends
};
// Waits up to timeout_ms (kNoTimeout: for ever) for one message. passed: a descriptor that came with it.
Received Receive(int fd, Message* message, Descriptor* passed, int timeout_ms);

// The proof of a connection comes before its first message. An answer of `count` bytes that is no message.
// kForeign: neither that nor a message; kMessage: a message instead, as a refusal is one.
enum class Answer { kAnswer, kMessage, kTimeout, kEnded, kForeign };
Answer ReceiveAnswer(int fd, void* answer, size_t count, Message* message, int timeout_ms);

// poll() for reading, not cut short by signals. False when the time is over.
bool WaitReadable(int fd, int timeout_ms);

}  // namespace larder::rdma::internal
