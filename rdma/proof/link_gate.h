// LinkGate: admits peers to a listener of links. It holds up to 32 connections at once in one
// poll(), each at its own step of the proof (rdma/proof/link_proof.h), so strangers that are
// silent, slow or many take places but nobody's time. If all places are taken, the connection that
// has advanced least (and of those the oldest) is dropped for a new one. The time limit of a step
// can therefore be long enough for a legitimate peer on a machine where 30 processes want each core
// (half a second was too short there). A connection that is not admitted learns nothing; the
// operator's log gets an occasional line about it. For stream and SEQPACKET sockets. Set-up only,
// one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "rdma/proof/link_key.h"
#include "rdma/proof/link_proof.h"

namespace larder::rdma::inline proof {

// A peer that has proven that it knows the key, and the hello that it then sent.
struct Guest {
  Descriptor connection;
  std::string who;  // "10.0.0.2:40112", "pid 17"
  SessionKey session;
  std::vector<std::byte> hello;  // its MAC was right
};

class LinkGate {
 public:
  static constexpr size_t kPlaces = 32;
  static constexpr int kStepMs = 5000;

  struct Setup {
    int listener = -1;  // -1: only connections given to Add()
    std::string what;   // begins log lines: "link to socket stage1 at 10.0.0.2:7000"
    ConnectionKind kind = ConnectionKind::kTcp;
    const LinkKey* key = nullptr;
    size_t hello_bytes = 0;  // size of the hello, which ends with its MAC
    // kData: the session whose second connection is expected; its guest has no hello.
    const SessionKey* session = nullptr;
    // Looks at a new connection before a byte is read. *who gets the peer's name. Returns why it is
    // not admitted; empty: it is.
    std::function<std::string(const Descriptor& connection, std::string* who)> admit;
    int step_ms = kStepMs;
    int stop_fd = -1;   // the wait ends when it becomes readable
    int leave_fd = -1;  // the wait ends when its other end closes it
  };
  explicit LinkGate(Setup setup) : setup_(std::move(setup)) {}

  void Add(Descriptor connection, std::string who);
  // The next guest. nullopt: the deadline has passed, or see stopped() and left().
  std::optional<Guest> Next(int64_t deadline_ns);
  bool stopped() const { return stopped_; }
  bool left() const { return left_; }
  size_t pending() const { return pending_.size(); }
  // Why the last connection was refused: "10.0.0.9:4711 does not prove ..."; empty: none was
  // refused.
  const std::string& last() const { return last_; }

 private:
  enum class Step { kGreeting, kProof, kHello };
  struct Pending {
    Descriptor connection;
    std::string who;
    int64_t until_ns = 0;
    Step step = Step::kGreeting;
    std::vector<std::byte> bytes;  // this step's message, of which `have` bytes have arrived
    size_t have = 0;
    Verifier verifier;
    std::string wrong;  // why it is refused
  };
  enum class Progress { kWaits, kGone, kArrived };

  void AcceptAll();
  void StartStep(Pending& pending, Step step, size_t bytes);
  Progress Read(Pending& pending);
  Progress Finish(Pending& pending);
  void Turn(const Pending& pending, const std::string& why);

  Setup setup_;
  std::list<Pending> pending_;  // in order of arrival
  int64_t accept_after_ns_ = 0;
  bool stopped_ = false, left_ = false;
  std::string last_;
};

}  // namespace larder::rdma::proof
