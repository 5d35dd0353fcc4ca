// ControlChannel: how two processes of one server find each other, check that they mean the same, hand over
// the shared memory and know that the other lives. A SOCK_SEQPACKET Unix socket with a name
// (rdma/ipc/local_socket.h): a crash leaves nothing that could block the next start.
// Set-up only, blocking, one thread. After WaitReady() both ends start a PeerMonitor
// (rdma/control/peer_monitor.h); nothing but its signs of life and Bye() travels then. No data of a step ever
// comes this way.
//
// Before the hellos both prove that they know the cluster's key, as the links between servers do
// (rdma/proof/link_proof.h); the kernel has said already that they are of one user. The listener says its
// hello to whoever agrees with it only.
//
// In this order, both ends:  ConnectHello / AcceptHello  ->  SendMemory / ReceiveMemory  ->  Ready, WaitReady
// ->  Bye
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "rdma/ipc/descriptor.h"
#include "rdma/ipc/shared_memory.h"
#include "rdma/proof/link_key.h"

namespace larder::rdma {

inline constexpr uint64_t kHelloMagic = 0x4f4c4c4548524cull;  // "LRHELLO"
inline constexpr uint64_t kHelloVersion = 4;
inline constexpr int kNoTimeout = -1;
inline constexpr size_t kAnyPeers = ~size_t{0};

// What threads do that wait for a flag in memory of two processes: whoever signals it must know.
enum class WaitsHow : uint32_t {
  kNotSaid,  // no such flags, or all that signal wake
  kSpins,
  kSleeps,  // after a while
};

struct Hello {
  uint64_t magic = kHelloMagic;
  uint64_t version = kHelloVersion;
  uint64_t plan_hash = 0;     // of the whole Plan: must be equal
  uint64_t memory_bytes = 0;  // of the region to be handed over: must be equal
  uint64_t session = 0;       // LinkIdentity's, of a frame link
  // What the sender's threads do, and what it takes the receiver's to do: must be what they do.
  WaitsHow waits = WaitsHow::kNotSaid, peer_waits = WaitsHow::kNotSaid;
  char socket_name[64] = {};  // the sender's, as in the manifest, ended by a zero

  void SetSocketName(const std::string& name);  // Error if it is too long
};
static_assert(sizeof(Hello) == 112 && std::is_trivially_copyable_v<Hello>);

class ControlChannel;
namespace internal {
struct Message;
// Takes the peer's name from its hello. What is wrong with it, for the own log and for the peer.
std::string CheckHello(const Message& came, const Hello& mine, ControlChannel& channel, std::string* refusal);
}  // namespace internal

class ControlChannel {
 public:
  // Not connected. Movable; when a connected one ends without Bye(), the peer takes it for a crash.
  ControlChannel() = default;

  // Of a channel that came by Connect() or Accept(): proves, sends mine, returns the peer's. Error if the
  // peer is something else, does not know the key, has another version, another Plan, another size of
  // memory or other ways to wait; if it refused (saying why), ended, or sent nothing in time.
  Hello ExchangeHello(const Hello& mine, int timeout_ms = kNoTimeout, const LinkKey& key = LinkKey::Open());

  // The descriptor travels by SCM_RIGHTS. Attach's Errors on the receiving side.
  void SendMemory(const SharedMemory& memory);
  SharedMemory ReceiveMemory(size_t expected_bytes, int timeout_ms = kNoTimeout);

  void Ready();
  void WaitReady(int timeout_ms = kNoTimeout);  // Error if the peer ends before, or the time is over

  // "I end on purpose." Never fails: a peer that has gone needs no goodbye. Any thread.
  void Bye() noexcept;
  // Instead of what is due: the peer's Error says why.
  void Refuse(const std::string& why);

  pid_t peer_pid() const { return peer_pid_; }  // by SO_PEERCRED
  // "socket attention0 (pid 123)"; before ExchangeHello "the peer on NAME (pid 123)"
  std::string peer() const;
  const std::string& peer_name() const { return peer_name_; }  // from its Hello, empty before
  int fd() const { return fd_.get(); }

 private:
  friend class ControlListener;
  friend std::string internal::CheckHello(const internal::Message&, const Hello&, ControlChannel&,
                                          std::string*);
  friend ControlChannel Connect(const std::string& name, int timeout_ms);
  friend ControlChannel ConnectHello(const std::string& name, const Hello& mine, int timeout_ms,
                                     const LinkKey& key);
  ControlChannel(Descriptor fd, std::string name, pid_t peer_pid, bool listens);
  std::optional<Hello> TryHello(const Hello& mine, int timeout_ms, const LinkKey& key, std::string* why);
  Hello AnswerHello(const Hello& mine, int timeout_ms, const LinkKey& key);

  Descriptor fd_;
  std::string name_;  // of the channel
  pid_t peer_pid_ = 0;
  bool listens_ = false;  // this end is the listener's
  std::string peer_name_;
};

// Listens on a name for a set number of peers; when all have come, further ones are refused, with a line that
// says who is there, for as long as the listener lives (a sleeping thread does it).
class ControlListener {
 public:
  // name: up to 100 bytes; the caller makes it unique among the runs of a server (manifest, socket). Error if
  // it is in use, with the pid of who has it if the kernel tells.
  // kAnyPeers: refuses nobody; who comes while nobody accepts, waits.
  explicit ControlListener(std::string name, size_t peers = 1);
  ~ControlListener();
  ControlListener(const ControlListener&) = delete;
  ControlListener& operator=(const ControlListener&) = delete;

  ControlChannel Accept(int timeout_ms = kNoTimeout);  // Error if nobody came in time

  // The next peer who proves that he knows the key and whose hello agrees with mine. Strangers, however many,
  // keep nobody waiting (rdma/proof/link_gate.h); whoever knows the key and disagrees is told so, and the
  // next may do better. session: other sessions' connectors are refused; 0: any. stop_fd: readable: Error at
  // once. Error if nobody came in time, which says what was wrong with the last one.
  ControlChannel AcceptHello(const Hello& mine, int timeout_ms, const LinkKey& key = LinkKey::Open(),
                             uint64_t* session = nullptr, int stop_fd = -1);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Tries until somebody listens on the name. Error after timeout_ms: names it and says what to start.
ControlChannel Connect(const std::string& name, int timeout_ms);
// That and ExchangeHello(), again if the listener closes the connection before the hellos: it has its hands
// full, or takes somebody else first. Error at once if it knows the key and refuses.
ControlChannel ConnectHello(const std::string& name, const Hello& mine, int timeout_ms,
                            const LinkKey& key = LinkKey::Open());

}  // namespace larder::rdma
