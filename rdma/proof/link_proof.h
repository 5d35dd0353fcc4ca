// How the two ends of a set-up connection prove to each other that they know the cluster's key,
// before either says anything about the Plan. Every such connection does it: the control
// connections of TCP and verbs, and the control channel of shared memory (frame links and attention
// sockets).
//
//   connector                                listener
//     Greeting: magic, version, kind, nonce  ->
//                                            <-   Challenge: magic, version, nonce
//     HMAC(key, "connector", both)           ->
//                                            <-   HMAC(key, "listener", both)
//     hello, HMAC(session, ...)              ->
//                                            <-   hello or refusal, HMAC(session, ...)
//   Nonces are 32 random bytes, new for each connection; session = HMAC(key, "session", both). The
//   connector proves itself first: a stranger gets a nonce.
//   A TCP link's second connection: a Greeting of kind kData whose nonce is
//   HMAC(session, "data connection"). rdma_cm's private data carry HMAC(session, what they say and
//   the queue pair's number).
//
// libsodium provides HMAC-SHA-256, random bytes and comparison in constant time. Every proof covers
// both nonces (through the whole Greeting and Challenge, so version and kind as well). Therefore:
// - replayed bytes of an earlier connection fail, because the other side's nonce is new;
// - a reflected proof fails, because each direction has its own label, as the hellos do;
// - a proof for one kind of link (shared memory, TCP, verbs) is not valid for another;
// - a connector without the key learns only a nonce, and may keep one of 32 places until another
//   connection needs it (rdma/proof/link_gate.h);
// - a listener without the key learns as little: the connector's hello comes after the listener's
//   proof.
// An eavesdropper sees the hellos, the frames and the beats: nothing is encrypted. A man in the
// middle cannot change a hello or the private data of rdma_cm. He can forward the proofs and then
// change frames and beats, which are not authenticated because that would slow the data path. If
// the network is not trusted that far, put WireGuard below the links (docs/cluster.md). Forward
// secrecy is not needed: someone who learns the key later can read nothing in a recording that was
// not in clear text already. Without a key both ends use LinkKey::Open(), which is public: the same
// bytes cross, and prove nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "rdma/proof/link_key.h"
#include "rdma/proof/link_wire.h"

namespace larder::rdma::inline proof {

enum class ConnectionKind : uint32_t {
  kShm = 1,
  kTcp,  // control connections
  kVerbs,
  kData,  // the second connection of a TCP link
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
bool Equal(const uint8_t* a, const uint8_t* b);  // compares kMacBytes bytes in constant time

// Labels of the messages that a session authenticates.
inline constexpr std::string_view kConnectorHello = "hello of the connector",
                                  kListenerHello = "hello of the listener",
                                  kDataConnection = "data connection",
                                  kVerbsRequest = "queue pair's request",
                                  kVerbsAnswer = "queue pair's answer";

// The secret that only the two ends of one connection know.
class SessionKey {
 public:
  SessionKey() = default;
  explicit SessionKey(const Mac& bytes) : bytes_(bytes) {}
  ~SessionKey();
  SessionKey(const SessionKey&) = default;
  SessionKey& operator=(const SessionKey&) = default;

  Mac Of(std::string_view label, const void* bytes, size_t count) const;

  // Sets the MAC of a message whose last member is `mac`.
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
  std::string Meet(const Challenge& challenge);  // returns what is wrong with it; empty: nothing
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
  const Mac& proof() const { return proof_; }  // sent only to a connector that Believes() accepted
  const SessionKey& session() const { return session_; }

 private:
  Challenge challenge_;
  Mac proof_ = {}, expected_ = {};
  SessionKey session_;
};

// The first message of a TCP link's second connection, and the test whether one belongs to this
// session.
Greeting DataGreeting(const SessionKey& session);
bool IsDataGreeting(const SessionKey& session, const Greeting& greeting);

}  // namespace larder::rdma::proof
