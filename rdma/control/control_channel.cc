#include "rdma/control/control_channel.h"

#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "rdma/common/retry.h"
#include "rdma/control/control_message.h"
#include "rdma/proof/link_proof.h"
#include "rdma/proof/tcp_connection.h"

namespace larder::rdma::inline control {
namespace {

[[noreturn]] void ThrowEnded(const std::string& peer, const char* before) {
  throw Error("{} ended before {}: its own output says why; start it again", peer, before);
}

// The next message from the peer, which must be of this kind. passed: a descriptor that came with
// it.
Message Expect(const ControlChannel& channel, MessageKind kind, const char* what, int timeout_ms,
               Descriptor* passed) {
  Message message;
  switch (ReceiveMessage(channel.fd(), &message, passed, timeout_ms)) {
    case Received::kMessage:
      break;
    case Received::kTimeout:
      throw Error("{} sent no {} in {} ms: it hangs or is still loading; see its output",
                  channel.peer(), what, timeout_ms);
    case Received::kEnded:
      ThrowEnded(channel.peer(), what);
    case Received::kForeign:
      throw Error(
          "{} does not speak this protocol: it is another program, or another build of this one",
          channel.peer());
  }
  if (message.kind == MessageKind::kRefused)
    throw Error("{} refused: {}", channel.peer(), message.text);
  if (message.kind == MessageKind::kBye) ThrowEnded(channel.peer(), what);
  if (message.kind != kind) {
    throw Error("{} sent message {} instead of its {}: the two programs are different builds",
                channel.peer(), static_cast<uint32_t>(message.kind), what);
  }
  return message;
}

const char* NameOf(WaitsHow waits) {
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

// Why the two processes cannot work together, for our log; empty if they can.
std::string HelloDisagreement(const Hello& mine, const Hello& theirs, const std::string& peer) {
  if (theirs.magic != mine.magic || theirs.version != mine.version) {
    return fmt::format(
        "{} has version {} of the control channel, this process version {}: start both from one "
        "build",
        peer, theirs.version, mine.version);
  }
  if (theirs.plan_hash != mine.plan_hash) {
    return fmt::format(
        "{} has Plan {:016x}, this process Plan {:016x}: the two processes were started with "
        "different models or manifests",
        peer, theirs.plan_hash, mine.plan_hash);
  }
  if (theirs.memory_bytes != mine.memory_bytes) {
    return fmt::format(
        "{} expects {} bytes of shared memory, this process {}: start both from one build", peer,
        theirs.memory_bytes, mine.memory_bytes);
  }
  // A process that takes a sleeping waiter for a spinning one never wakes it.
  if (theirs.waits != mine.peer_waits || theirs.peer_waits != mine.waits) {
    return fmt::format(
        "{}: its threads {} while they wait, here they are taken to {}; ours {}, there they are "
        "taken to {}: give --isolated to both processes or to neither (isolated = true in the "
        "manifest holds for both)",
        peer, NameOf(theirs.waits), NameOf(mine.peer_waits), NameOf(mine.waits),
        NameOf(theirs.peer_waits));
  }
  return {};
}

// The same for the peer: it says which field differs, but not our value.
std::string HelloRefusal(const Hello& mine, const Hello& theirs) {
  if (theirs.magic != mine.magic || theirs.version != mine.version)
    return fmt::format("another version of the control channel than {}: start both from one build",
                       theirs.version);
  if (theirs.plan_hash != mine.plan_hash) {
    return fmt::format(
        "another Plan than {:016x}: the two processes were started with different models or "
        "manifests",
        theirs.plan_hash);
  }
  if (theirs.memory_bytes != mine.memory_bytes)
    return fmt::format("not {} bytes of shared memory: start both from one build",
                       theirs.memory_bytes);
  if (theirs.waits != mine.peer_waits || theirs.peer_waits != mine.waits) {
    return fmt::format(
        "other threads spin or sleep while they wait: give --isolated to both processes or to "
        "neither (isolated = true in the manifest holds for both)");
  }
  return {};
}

}  // namespace

void Hello::SetSocketName(const std::string& name) {
  if (name.size() >= sizeof(socket_name)) {
    throw Error("socket name \"{}\": {} bytes, at most {} are allowed; shorten it in the manifest",
                name, name.size(), sizeof(socket_name) - 1);
  }
  std::memset(socket_name, 0, sizeof(socket_name));
  std::memcpy(socket_name, name.data(), name.size());
}

ControlChannel::ControlChannel(Descriptor fd, std::string name, pid_t peer_pid, bool listens)
    : fd_(std::move(fd)), name_(std::move(name)), peer_pid_(peer_pid), listens_(listens) {}

std::string ControlChannel::peer() const {
  if (peer_name_.empty()) return fmt::format("the peer on {} (pid {})", name_, peer_pid_);
  return fmt::format("socket {} (pid {})", peer_name_, peer_pid_);
}

std::string CheckHello(const Message& came, const Hello& mine, ControlChannel& channel,
                       std::string* refusal) {
  Hello theirs = came.hello;
  theirs.socket_name[sizeof(theirs.socket_name) - 1] = 0;
  channel.peer_name_ = Text(theirs.socket_name);
  *refusal = HelloRefusal(mine, theirs);
  return HelloDisagreement(mine, theirs, channel.peer());
}

// One attempt of a connector. nullopt: the listener closed the connection before the hellos; *why
// says when.
std::optional<Hello> ControlChannel::TryHello(const Hello& mine, int timeout_ms, const LinkKey& key,
                                              std::string* why) {
  Message message;
  const auto answer = [&](void* bytes, size_t count, const char* what) {
    switch (ReceiveAnswer(fd(), bytes, count, &message, timeout_ms)) {
      case Answer::kAnswer:
        return true;
      case Answer::kMessage:
        if (message.kind == MessageKind::kRefused)
          throw Error("{} refused: {}", peer(), Text(message.text));
        break;
      case Answer::kTimeout:
        if (!why->empty()) return false;  // an earlier attempt gave a better reason
        throw Error("{} sent no {} in {} ms: it hangs or is still loading; see its output", peer(),
                    what, timeout_ms);
      case Answer::kEnded:
        *why = fmt::format("{} ended before {}: its own output says why; start it again", peer(),
                           what);
        return false;
      case Answer::kForeign:
        break;
    }
    throw Error(
        "{} does not speak this protocol: it is another program, or another build of this one",
        peer());
  };
  Prover prover(key, ConnectionKind::kShm);
  // If the peer is gone, its last message can still be read and says more than this call's errno.
  SendBytes(fd(), &prover.greeting(), sizeof(Greeting));
  Challenge challenge;
  if (!answer(&challenge, sizeof(challenge), "hello")) return std::nullopt;
  if (const std::string wrong = prover.Meet(challenge); !wrong.empty())
    throw Error("cannot connect to {}: {}", peer(), wrong);
  SendBytes(fd(), prover.proof().data(), kMacBytes);
  Mac proof;
  if (!answer(proof.data(), proof.size(), "its proof of the cluster's key")) {
    if (why->find("link.key") == std::string::npos)
      *why += fmt::format(
          " (both processes need the same link.key, or neither has one; this one has {})",
          key.open() ? "none" : "one");
    return std::nullopt;
  }
  if (!prover.Believes(proof))
    throw Error("{} does not know the cluster's key: it is an impostor", peer());
  Message hello;
  hello.hello = mine;
  prover.session().Seal(kConnectorHello, hello);
  SendMessage(fd(), hello);
  Descriptor unexpected;
  const Message came = Expect(*this, MessageKind::kHello, "hello", timeout_ms, &unexpected);
  if (!prover.session().Sealed(kListenerHello, &came, sizeof(came)))
    throw Error("{} sent a hello that was changed on the way", peer());
  std::string refusal;
  if (const std::string wrong = CheckHello(came, mine, *this, &refusal); !wrong.empty())
    throw Error("{}", wrong);
  return came.hello;
}

Hello ControlChannel::ExchangeHello(const Hello& mine, int timeout_ms, const LinkKey& key) {
  if (listens_) return AnswerHello(mine, timeout_ms, key);
  std::string why;
  if (std::optional<Hello> theirs = TryHello(mine, timeout_ms, key, &why)) return *theirs;
  throw Error("{}", why);
}

ControlChannel ConnectHello(const std::string& name, const Hello& mine, int timeout_ms,
                            const LinkKey& key) {
  const int64_t deadline_ns = DeadlineNs(timeout_ms);
  const auto left_ms = [&] { return timeout_ms < 0 ? kNoTimeout : LeftMs(deadline_ns); };
  RetryPause pause;
  for (std::string why;;) {
    ControlChannel channel = Connect(name, left_ms());
    if (channel.TryHello(mine, left_ms(), key, &why)) return channel;
    if (timeout_ms >= 0 && LeftMs(deadline_ns) == 0) throw Error("{}", why);
    pause.Sleep(LeftMs(deadline_ns));
  }
}

void ControlChannel::SendMemory(const SharedMemory& memory) {
  Message message;
  message.kind = MessageKind::kMemory;
  if (!SendMessage(fd(), message, memory.fd()))
    ThrowEnded(peer(), "it was given the shared memory");
}

SharedMemory ControlChannel::ReceiveMemory(size_t expected_bytes, int timeout_ms) {
  Descriptor memory;
  Expect(*this, MessageKind::kMemory, "shared memory", timeout_ms, &memory);
  if (!memory) {
    throw Error(
        "{}: its shared memory's descriptor did not arrive: raise this process's limit of open "
        "files",
        peer());
  }
  return SharedMemory::Attach(memory.Take(), expected_bytes);
}

void ControlChannel::Ready() {
  Message message;
  message.kind = MessageKind::kReady;
  SendMessage(fd(), message);  // if the peer has gone, WaitReady() or the monitor says so
}

void ControlChannel::WaitReady(int timeout_ms) {
  Descriptor unexpected;
  Expect(*this, MessageKind::kReady, "\"ready\"", timeout_ms, &unexpected);
}

void ControlChannel::Bye() noexcept {
  Message message;
  message.kind = MessageKind::kBye;
  SendMessage(fd(), message);
}

void ControlChannel::Refuse(const std::string& why) { SendRefusal(fd(), why); }

}  // namespace larder::rdma::control
