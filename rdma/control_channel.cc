#include "rdma/control_channel.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "rdma/control_message.h"

namespace larder::rdma {
namespace {

using internal::Message;
using internal::MessageKind;
using internal::Received;

[[noreturn]] void ThrowEnded(const std::string& peer, const char* before) {
  throw Error("{} ended before {}: its own output says why; start it again", peer, before);
}

// The next message from the peer, which must be of this kind. passed: a descriptor that came with it.
Message Expect(const ControlChannel& channel, MessageKind kind, const char* what, int timeout_ms,
               Descriptor* passed) {
  Message message;
  switch (internal::Receive(channel.fd(), &message, passed, timeout_ms)) {
    case Received::kMessage:
      break;
    case Received::kTimeout:
      throw Error("{} sent no {} in {} ms: it hangs or is still loading; see its output", channel.peer(),
                  what, timeout_ms);
    case Received::kEnded:
      ThrowEnded(channel.peer(), what);
    case Received::kForeign:
      throw Error("{} does not speak this protocol: it is another program, or another build of this one",
                  channel.peer());
  }
  if (message.kind == MessageKind::kRefused) throw Error("{} refused: {}", channel.peer(), message.text);
  if (message.kind == MessageKind::kBye) ThrowEnded(channel.peer(), what);
  if (message.kind != kind) {
    throw Error("{} sent message {} instead of its {}: the two programs are different builds", channel.peer(),
                static_cast<uint32_t>(message.kind), what);
  }
  return message;
}

const char* Text(WaitsHow waits) {
  switch (waits) {
    case WaitsHow::kSpins:
      return "spin";
    case WaitsHow::kSleeps:
      return "sleep";
    case WaitsHow::kNotSaid:
      break;
  }
  return "do nothing known";
}

void Check(const Hello& mine, const Hello& theirs, const std::string& peer) {
  if (theirs.magic != mine.magic || theirs.version != mine.version) {
    throw Error(
        "{} has version {} of the control channel, this process version {}: start both from one build", peer,
        theirs.version, mine.version);
  }
  if (theirs.plan_hash != mine.plan_hash) {
    throw Error(
        "{} has Plan {:016x}, this process Plan {:016x}: the two processes were started with different "
        "models "
        "or manifests",
        peer, theirs.plan_hash, mine.plan_hash);
  }
  if (theirs.memory_bytes != mine.memory_bytes) {
    throw Error("{} expects {} bytes of shared memory, this process {}: start both from one build", peer,
                theirs.memory_bytes, mine.memory_bytes);
  }
  // A process that takes a sleeper for a spinner never wakes it.
  if (theirs.waits != mine.peer_waits || theirs.peer_waits != mine.waits) {
    throw Error(
        "{}: its threads {} while they wait, here they are taken to {}; ours {}, there they are taken to {}: give "
        "--isolated to both processes or to neither (isolated = true in the manifest holds for both)",
        peer, Text(theirs.waits), Text(mine.peer_waits), Text(mine.waits), Text(theirs.peer_waits));
  }
}

}  // namespace

void Hello::SetSocketName(const std::string& name) {
  if (name.size() >= sizeof(socket_name)) {
    throw Error("socket name \"{}\": {} bytes, at most {} are allowed; shorten it in the manifest", name,
                name.size(), sizeof(socket_name) - 1);
  }
  std::memset(socket_name, 0, sizeof(socket_name));
  std::memcpy(socket_name, name.data(), name.size());
}

ControlChannel::ControlChannel(Descriptor fd, std::string name, pid_t peer_pid)
    : fd_(std::move(fd)), name_(std::move(name)), peer_pid_(peer_pid) {}

std::string ControlChannel::peer() const {
  if (peer_name_.empty()) return fmt::format("the peer on {} (pid {})", name_, peer_pid_);
  return fmt::format("socket {} (pid {})", peer_name_, peer_pid_);
}

Hello ControlChannel::ExchangeHello(const Hello& mine, int timeout_ms) {
  Message message;
  message.hello = mine;
  // If the peer has gone, what it said last is still to be read and says more than this call's errno.
  internal::Send(fd(), message);
  Descriptor unexpected;
  Hello theirs = Expect(*this, MessageKind::kHello, "hello", timeout_ms, &unexpected).hello;
  theirs.socket_name[sizeof(theirs.socket_name) - 1] = 0;
  peer_name_ = theirs.socket_name;
  Check(mine, theirs, peer());
  return theirs;
}

void ControlChannel::SendMemory(const SharedMemory& memory) {
  Message message;
  message.kind = MessageKind::kMemory;
  if (!internal::Send(fd(), message, memory.fd())) ThrowEnded(peer(), "it was given the shared memory");
}

SharedMemory ControlChannel::ReceiveMemory(size_t expected_bytes, int timeout_ms) {
  Descriptor memory;
  Expect(*this, MessageKind::kMemory, "shared memory", timeout_ms, &memory);
  if (!memory) {
    throw Error("{}: its shared memory's descriptor did not arrive: raise this process's limit of open files",
                peer());
  }
  return SharedMemory::Attach(memory.Take(), expected_bytes);
}

void ControlChannel::Ready() {
  Message message;
  message.kind = MessageKind::kReady;
  internal::Send(fd(), message);  // if the peer has gone, WaitReady() or the monitor says so
}

void ControlChannel::WaitReady(int timeout_ms) {
  Descriptor unexpected;
  Expect(*this, MessageKind::kReady, "\"ready\"", timeout_ms, &unexpected);
}

void ControlChannel::Bye() noexcept {
  Message message;
  message.kind = MessageKind::kBye;
  internal::Send(fd(), message);
}

void ControlChannel::Refuse(const std::string& why) { internal::Refuse(fd(), why); }

}  // namespace larder::rdma
