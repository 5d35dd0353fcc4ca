#include "rdma/proof/link_proof.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>

namespace larder::rdma::inline proof {
namespace {

static_assert(kMacBytes == crypto_auth_hmacsha256_BYTES &&
              LinkKey::kBytes == crypto_auth_hmacsha256_KEYBYTES);

// Labels end with a zero byte and contain none, so no two inputs of one key are equal.
Mac Hmac(const uint8_t* key, std::string_view label, const void* first, size_t first_bytes,
         const void* second, size_t second_bytes) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, key, LinkKey::kBytes);
  constexpr uint8_t kEnd = 0;
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const uint8_t*>(label.data()),
                                label.size());
  crypto_auth_hmacsha256_update(&state, &kEnd, 1);
  crypto_auth_hmacsha256_update(&state, static_cast<const uint8_t*>(first), first_bytes);
  if (second_bytes > 0)
    crypto_auth_hmacsha256_update(&state, static_cast<const uint8_t*>(second), second_bytes);
  Mac mac;
  crypto_auth_hmacsha256_final(&state, mac.data());
  sodium_memzero(&state, sizeof(state));
  return mac;
}

Mac OfBoth(const LinkKey& key, std::string_view label, const Greeting& greeting,
           const Challenge& challenge) {
  return Hmac(key.data(), label, &greeting, sizeof(greeting), &challenge, sizeof(challenge));
}

constexpr std::string_view kConnector = "larder link: connector",
                           kListener = "larder link: listener", kSession = "larder link: session";

// What is wrong with a Greeting or Challenge of another protocol or version; empty: nothing.
template <typename Message>
std::string Foreign(const Message& message) {
  if (message.magic != kWireMagic) return "it is another program, or an older version of this one";
  if (message.version != kWireVersion) {
    return fmt::format(
        "it speaks version {} of the links' protocol, this process version {}: install one build "
        "on all servers",
        message.version, kWireVersion);
  }
  return {};
}

}  // namespace

bool Equal(const uint8_t* a, const uint8_t* b) { return sodium_memcmp(a, b, kMacBytes) == 0; }

SessionKey::~SessionKey() { sodium_memzero(bytes_.data(), bytes_.size()); }

Mac SessionKey::Of(std::string_view label, const void* bytes, size_t count) const {
  return Hmac(bytes_.data(), label, bytes, count, nullptr, 0);
}

bool SessionKey::Sealed(std::string_view label, const void* message, size_t count) const {
  const size_t body_bytes = count - kMacBytes;
  return Equal(Of(label, message, body_bytes).data(),
               static_cast<const uint8_t*>(message) + body_bytes);
}

Prover::Prover(const LinkKey& key, ConnectionKind kind) : key_(key) {
  greeting_.kind = kind;
  randombytes_buf(greeting_.nonce, sizeof(greeting_.nonce));
}

std::string Prover::Meet(const Challenge& challenge) {
  if (std::string foreign = Foreign(challenge); !foreign.empty()) return foreign;
  proof_ = OfBoth(key_, kConnector, greeting_, challenge);
  expected_ = OfBoth(key_, kListener, greeting_, challenge);
  session_ = SessionKey(OfBoth(key_, kSession, greeting_, challenge));
  return {};
}

std::string Verifier::Meet(const LinkKey& key, const Greeting& greeting, ConnectionKind kind) {
  if (std::string foreign = Foreign(greeting); !foreign.empty()) return foreign;
  if (greeting.kind != kind) {
    return greeting.kind == ConnectionKind::kData
               ? "it brings the second connection of a link that was given up"
               : "it wants another transport: the two manifests differ";
  }
  randombytes_buf(challenge_.nonce, sizeof(challenge_.nonce));
  expected_ = OfBoth(key, kConnector, greeting, challenge_);
  proof_ = OfBoth(key, kListener, greeting, challenge_);
  session_ = SessionKey(OfBoth(key, kSession, greeting, challenge_));
  return {};
}

Greeting DataGreeting(const SessionKey& session) {
  Greeting greeting;
  greeting.kind = ConnectionKind::kData;
  const Mac mac = session.Of(kDataConnection, &greeting, offsetof(Greeting, nonce));
  std::copy(mac.begin(), mac.end(), greeting.nonce);
  return greeting;
}

bool IsDataGreeting(const SessionKey& session, const Greeting& greeting) {
  const Greeting expected = DataGreeting(session);
  return greeting.magic == expected.magic && greeting.version == expected.version &&
         greeting.kind == expected.kind && Equal(greeting.nonce, expected.nonce);
}

}  // namespace larder::rdma::proof
