// How two ends of a set-up connection prove to each other that they know the cluster's key, before anything
// of the Plan is said. For every such connection: TCP's and verbs' control connections, shared memory's
// control channel (frame links and attention sockets).
//
//   connector                                   listener
//     Greeting: magic, version, kind, nonce  ->            32 random bytes, new for each connection
//                                            <-   Challenge: magic, version, nonce
//     HMAC(key, "connector", both)           ->            the connector proves itself first:
//                                            <-   HMAC(key, "listener", both)      a stranger gets a nonce
//     hello, HMAC(session, ...)              ->            session = HMAC(key, "session", both)
//                                            <-   hello or refusal, HMAC(session, ...)
//   A TCP link's second connection: a Greeting of kind kData whose nonce is HMAC(session, "data connection").
//   rdma_cm's private data carry HMAC(session, what they say and the queue pair's number).
//
// HMAC-SHA-256, random bytes and comparison in constant time are libsodium's. Every message that is proven
// covers both nonces (through the whole Greeting and Challenge, so version and kind as well), thus:
// - replayed bytes of an earlier connection fail: the other side's nonce is another one;
// - a proof that is reflected fails: the two directions have labels of their own, as the hellos have;
// - a proof for shared memory, TCP or verbs is none for another kind;
// - who has no key learns a nonce, and may keep one of 32 places until somebody else needs it
// (rdma/proof/link_gate.h);
// - a listener without the key learns the same: the hello comes after its proof.
// An eavesdropper sees the hellos, the frames and the beats: nothing is encrypted. A man in the middle can't
// change a hello, nor what rdma_cm carries; but he can pass the proofs on and then change frames and beats,
// which are not authenticated: that would cost the data path. Where the network is not trusted that far,
// WireGuard below the links is the recipe (docs/cluster.md). Who has the key once can read nothing that
// was recorded but what was in clear anyhow; there is no need of forward secrecy.
// Without a key both ends use LinkKey::Open(), which everybody knows: the same bytes, proving nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "rdma/proof/link_key.h"
#include "rdma/proof/link_wire.h"

namespace larder::rdma::internal {

enum class ConnectionKind : uint32_t {
  kShm = 1,
  kTcp,  // control connections
  kVerbs,
  kData,  // a TCP link's second
};

struct Greeting {
  uint64_t magic = kWireMagic;
  uint32_t version = kWireVersion;
  ConnectionKind kind = ConnectionKind::kTcp;
  uint8_t nonce[32] = {};
};
struct Challenge {
  uint64_t magic = kWireMagic;
  uint32_t version = kWireVersion;
  uint32_t reserved = 0;
  uint8_t nonce[32] = {};
};
static_assert(sizeof(Greeting) == 48 && std::is_trivially_copyable_v<Greeting>);
static_assert(sizeof(Challenge) == 48 && std::is_trivially_copyable_v<Challenge>);

using Mac = std::array<uint8_t, kMacBytes>;
bool Equal(const uint8_t* a, const uint8_t* b);  // of kMacBytes, in constant time

// Labels of what a session authenticates.
inline constexpr std::string_view kConnectorHello = "hello of the connector",
                                  kListenerHello = "hello of the listener",
                                  kDataConnection = "data connection", kVerbsRequest = "queue pair's request",
                                  kVerbsAnswer = "queue pair's answer";

// What only the two ends of one connection know.
class SessionKey {
 public:
  SessionKey() = default;
  explicit SessionKey(const Mac& bytes) : bytes_(bytes) {}
  ~SessionKey();
  SessionKey(const SessionKey&) = default;
  SessionKey& operator=(const SessionKey&) = default;

  Mac Of(std::string_view label, const void* bytes, size_t count) const;

  // Of a message whose last member is its `mac`.
  template <typename Message>
  void Seal(std::string_view label, Message& message) const {
    const Mac mac = Of(label, &message, sizeof(Message) - kMacBytes);
    static_assert(offsetof(Message, mac) + kMacBytes == sizeof(Message));
    std::copy(mac.begin(), mac.end(), message.mac);
  }
  bool Sealed(std::string_view label, const void* message, size_t count) const;

 private:
  Mac bytes_ = {};
};

// The connector's half.
class Prover {
 public:
  Prover(const LinkKey& key, ConnectionKind kind);
  const Greeting& greeting() const { return greeting_; }
  std::string Meet(const Challenge& challenge);  // what is wrong with it; empty: nothing
  const Mac& proof() const { return proof_; }
  bool Believes(const Mac& listeners) const { return Equal(listeners.data(), expected_.data()); }
  const SessionKey& session() const { return session_; }

 private:
  const LinkKey& key_;
  Greeting greeting_;
  Mac proof_ = {}, expected_ = {};
  SessionKey session_;
};

// The listener's half.
class Verifier {
 public:
  std::string Meet(const LinkKey& key, const Greeting& greeting, ConnectionKind kind);
  const Challenge& challenge() const { return challenge_; }
  bool Believes(const Mac& connectors) const { return Equal(connectors.data(), expected_.data()); }
  const Mac& proof() const { return proof_; }  // sent to who is believed only
  const SessionKey& session() const { return session_; }

 private:
  Challenge challenge_;
  Mac proof_ = {}, expected_ = {};
  SessionKey session_;
};

// The first message of a TCP link's second connection, and whether one is of this session.
Greeting DataGreeting(const SessionKey& session);
bool IsDataGreeting(const SessionKey& session, const Greeting& greeting);

}  // namespace larder::rdma::internal
