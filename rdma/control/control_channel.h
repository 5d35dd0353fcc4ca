// ControlChannel: how two processes of one server find each other, check that they have the same
// Plan, hand over the shared memory and know that the other is alive. It is a SOCK_SEQPACKET Unix
// socket with a name (rdma/common/local_endpoint.h), so a crash leaves nothing that could block the
// next start. Set-up only, blocking, one thread. After WaitReady() both ends start a PeerMonitor
// (rdma/control/peer_monitor.h); from then on only its signs of life and Bye() cross the channel.
// No data of a step does.
//
// Before the hellos both ends prove that they know the cluster's key, as the links between servers
// do (rdma/proof/link_proof.h); the kernel has already said that they belong to one user. The
// listener sends its hello only to a peer whose hello agrees with it.
//
// In this order, both ends:
//   ConnectHello / AcceptHello  ->  SendMemory / ReceiveMemory  ->  Ready, WaitReady  ->  Bye
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "base/descriptor.h"
#include "rdma/common/shared_memory.h"
#include "rdma/proof/link_key.h"

namespace larder::rdma::inline control {

inline constexpr uint64_t kHelloMagic = 0x4f4c4c4548524cull;  // "LRHELLO"
inline constexpr uint64_t kHelloVersion = 4;
inline constexpr int kNoTimeout = -1;
inline constexpr size_t kAnyPeers = ~size_t{0};

// How threads wait for a flag in memory that two processes share. The process that signals it must
// know.
enum class WaitsHow : uint32_t {
  kNotSaid,  // there are no such flags, or every signal wakes
  kSpins,
  kSleeps,  // after a while
};

struct Hello {
  uint64_t magic = kHelloMagic;
  uint64_t version = kHelloVersion;
  uint64_t plan_hash = 0;     // the whole Plan's: must be equal
  uint64_t memory_bytes = 0;  // size of the region to be handed over: must be equal
  uint64_t session = 0;       // LinkIdentity's session, for a frame link
  // How the sender's threads wait, and how the sender expects the receiver's threads to wait. Each
  // must be what the other end says of itself.
  WaitsHow waits = WaitsHow::kNotSaid, peer_waits = WaitsHow::kNotSaid;
  char socket_name[64] = {};  // the sender's name in the manifest, zero-terminated

  void SetSocketName(const std::string& name);  // Error if it is too long
};
static_assert(sizeof(Hello) == 112 && std::is_trivially_copyable_v<Hello>);

class ControlChannel;
struct Message;
// Takes the peer's name from its hello. Returns what is wrong with the hello, for our log; *refusal
// says it for the peer. Empty: nothing is wrong.
std::string CheckHello(const Message& came, const Hello& mine, ControlChannel& channel,
                       std::string* refusal);

class ControlChannel {
 public:
  // Not connected. Movable. If a connected channel is destroyed without Bye(), the peer takes that
  // as a crash.
  ControlChannel() = default;

  // For a channel from Connect() or Accept(): proves the key, sends `mine`, returns the peer's
  // hello. Throws Error if the peer is not a Larder, does not know the key, or has another version,
  // Plan, size of memory or way to wait; and if it refused (the Error says why), ended, or sent
  // nothing in time.
  Hello ExchangeHello(const Hello& mine, int timeout_ms = kNoTimeout,
                      const LinkKey& key = LinkKey::Open());

  // The descriptor is sent by SCM_RIGHTS. The receiving side throws the Errors of
  // SharedMemory::Attach.
  void SendMemory(const SharedMemory& memory);
  SharedMemory ReceiveMemory(size_t expected_bytes, int timeout_ms = kNoTimeout);

  void Ready();
  void WaitReady(int timeout_ms = kNoTimeout);  // Error if the peer ends first, or at the timeout

  // Tells the peer that this end closes on purpose. Cannot fail: a peer that is gone needs no
  // goodbye. Any thread may call it.
  void Bye() noexcept;
  // Sent in place of the message that the peer waits for: the peer throws an Error with this
  // reason.
  void Refuse(const std::string& why);

  pid_t peer_pid() const { return peer_pid_; }  // by SO_PEERCRED
  // "socket attention0 (pid 123)"; before ExchangeHello "the peer on NAME (pid 123)"
  std::string peer() const;
  const std::string& peer_name() const { return peer_name_; }  // from its Hello, empty before
  int fd() const { return fd_.get(); }

 private:
  friend class ControlListener;
  friend std::string CheckHello(const Message&, const Hello&, ControlChannel&, std::string*);
  friend ControlChannel Connect(const std::string& name, int timeout_ms);
  friend ControlChannel ConnectHello(const std::string& name, const Hello& mine, int timeout_ms,
                                     const LinkKey& key);
  ControlChannel(Descriptor fd, std::string name, pid_t peer_pid, bool listens);
  std::optional<Hello> TryHello(const Hello& mine, int timeout_ms, const LinkKey& key,
                                std::string* why);
  Hello AnswerHello(const Hello& mine, int timeout_ms, const LinkKey& key);

  Descriptor fd_;
  std::string name_;  // the channel's
  pid_t peer_pid_ = 0;
  bool listens_ = false;  // this end is the listener's
  std::string peer_name_;
};

// Listens on a name for a set number of peers. When all have connected, a sleeping thread refuses
// further ones, with a line that names the connected peers, until the listener is destroyed.
class ControlListener {
 public:
  // name: up to 100 bytes; the caller makes it unique among the runs of a server (manifest,
  // socket). Throws Error if it is in use, with the pid of the process that has it if the kernel
  // says. kAnyPeers: refuses no peer; one that connects while no Accept() runs waits.
  explicit ControlListener(std::string name, size_t peers = 1);
  ~ControlListener();
  ControlListener(const ControlListener&) = delete;
  ControlListener& operator=(const ControlListener&) = delete;

  ControlChannel Accept(int timeout_ms = kNoTimeout);  // Error if no peer connected in time

  // The next peer that proves that it knows the key and whose hello agrees with `mine`. Strangers,
  // however many, do not delay it (rdma/proof/link_gate.h). A peer that knows the key and disagrees
  // is told so, and the wait goes on. session: connectors of other sessions are refused (0: any is
  // taken). stop_fd: throws Error at once when it becomes readable. Throws Error at the timeout,
  // with what was wrong with the last peer.
  ControlChannel AcceptHello(const Hello& mine, int timeout_ms,
                             const LinkKey& key = LinkKey::Open(), uint64_t* session = nullptr,
                             int stop_fd = -1);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Retries until a process listens on the name. After timeout_ms it throws an Error that names the
// channel and says what to start.
ControlChannel Connect(const std::string& name, int timeout_ms);
// Connect() and ExchangeHello(). It retries if the listener closes the connection before the
// hellos, which means that it is busy or takes another peer first. Throws Error at once if the
// listener knows the key and refuses.
ControlChannel ConnectHello(const std::string& name, const Hello& mine, int timeout_ms,
                            const LinkKey& key = LinkKey::Open());

}  // namespace larder::rdma::control
