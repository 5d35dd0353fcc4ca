// LinkGate: the door of whoever listens for links. It holds up to 32 connections at once, each at its own
// step of the proof (rdma/proof/link_proof.h), in one poll; so strangers that are silent, slow or many cost
// their own places and nobody's time. When all places are taken, the one that is least far, and of those the
// one that came first, makes room; so the time for a step need not be short, and a right one on a machine
// where 30 processes want each core has it (half a second was too short there). Who is not let in learns
// nothing; the operator's log has a line of him now and then. For stream and SEQPACKET sockets. Set-up only,
// one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "rdma/ipc/descriptor.h"
#include "rdma/proof/link_key.h"
#include "rdma/proof/link_proof.h"

namespace larder::rdma::internal {

// Who has proven that he knows the key, and what he said then.
struct Guest {
  Descriptor connection;
  std::string who;  // "10.0.0.2:40112", "pid 17"
  SessionKey session;
  std::vector<std::byte> hello;  // its mac was right
};

class LinkGate {
 public:
  static constexpr size_t kPlaces = 32;
  static constexpr int kStepMs = 5000;

  struct Setup {
    int listener = -1;  // -1: only who is added
    std::string what;   // of lines: "link to socket stage1 at 10.0.0.2:7000"
    ConnectionKind kind = ConnectionKind::kTcp;
    const LinkKey* key = nullptr;
    size_t hello_bytes = 0;  // of a message whose end is its mac
    // kData: the session whose second connection is meant; a guest has no hello then.
    const SessionKey* session = nullptr;
    // Looks at who came, before a byte is read: *who gets his name. What is wrong with him; empty: nothing.
    std::function<std::string(const Descriptor& connection, std::string* who)> admit;
    int step_ms = kStepMs;
    int stop_fd = -1;   // readable: whoever waits here is to stop
    int leave_fd = -1;  // its other end's closing ends the wait
  };
  explicit LinkGate(Setup setup) : setup_(std::move(setup)) {}

  void Add(Descriptor connection, std::string who);
  // The next guest; none: the time is over, or see stopped() and left().
  std::optional<Guest> Next(int64_t deadline_ns);
  bool stopped() const { return stopped_; }
  bool left() const { return left_; }
  size_t pending() const { return pending_.size(); }
  // Of the last one who was not let in: "10.0.0.9:4711 does not prove ..."; empty: nobody.
  const std::string& last() const { return last_; }

 private:
  enum class Step { kGreeting, kProof, kHello };
  struct Pending {
    Descriptor connection;
    std::string who;
    int64_t until_ns = 0;
    Step step = Step::kGreeting;
    std::vector<std::byte> bytes;  // of this step, `have` of them have come
    size_t have = 0;
    Verifier verifier;
    std::string wrong;  // why it has to go
  };
  enum class Progress { kWaits, kGone, kArrived };

  void AcceptAll();
  void StartStep(Pending& pending, Step step, size_t bytes);
  Progress Read(Pending& pending);
  Progress Finish(Pending& pending);
  void Turn(const Pending& pending, const std::string& why);

  Setup setup_;
  std::list<Pending> pending_;  // in the order of their coming
  int64_t accept_after_ns_ = 0;
  bool stopped_ = false, left_ = false;
  std::string last_;
};

}  // namespace larder::rdma::internal
