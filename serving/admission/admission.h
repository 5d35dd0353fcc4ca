// Admission: one budget for everything that clients make the server hold: connections, running
// requests, bytes received (incomplete requests, requests that wait to be read or are being read,
// prompts that wait for a slot) and bytes that a client has not read yet. Each resource has three
// limits: per connection, per peer address (IPv6: its /64), and in all. It exists from before the
// first connection until after the last. I/O thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace larder::serving::inline admission {

enum class Resource {
  kConnections,
  kRequests,     // texts that are being generated or wait for a slot
  kBytes,        // all bytes that are held, received or to be sent
  kQueuedBytes,  // the part of kBytes in large requests that wait for the background thread
};
inline constexpr size_t kResources = 4;
const char* ResourceName(Resource);

enum class Scope { kConnection, kPeer, kAll };
inline constexpr size_t kScopes = 3;
const char* ScopeName(Scope);

inline constexpr size_t kNoLimit = SIZE_MAX;

struct Limit {
  size_t connection = kNoLimit, peer = kNoLimit, all = kNoLimit;
};

struct AdmissionLimits {
  Limit connections{.peer = 64};                   // in all: ConnectionLimits, for each port
  Limit requests{.connection = 128, .peer = 128};  // in all: GenerationService's queue
  Limit bytes{.connection = size_t{16} << 20, .peer = size_t{64} << 20, .all = size_t{256} << 20};
  // The background thread reads 5 to 10 MB/s, so the last request waits for seconds, not for a
  // minute.
  Limit queued_bytes{.peer = size_t{8} << 20, .all = size_t{32} << 20};
  // This many bytes per connection are always allowed, so that a client with small requests is
  // served while others use up the budget.
  size_t free_bytes = size_t{16} << 10;
  // Whether the limits per peer apply to loopback. By default they do not: all clients of a local
  // proxy or load generator have that one address.
  bool loopback_is_a_peer = false;

  const Limit& of(Resource) const;
};

// The peer of a connection. Connections with the same name share a peer's limits.
struct PeerAddress {
  std::string name;
  bool loopback = false;
};
// The peer of an address: "10.0.0.1", "::ffff:10.0.0.1" (the same), "2001:db8::1%eth0"
// (2001:db8::/64). A text that is not an address is its own name.
PeerAddress PeerOf(const std::string& address);

class Admission {
  struct Peer;
  struct Account;

 public:
  // An amount of a resource. It is given back, once, by the destructor. I/O thread.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { Resize(0); }
    void Resize(size_t amount);  // not checked against the limits: the bytes are already held
    size_t amount() const { return amount_; }

   private:
    friend class Admission;
    std::shared_ptr<Account> account_;
    Resource resource_ = Resource::kBytes;
    size_t amount_ = 0;
  };

  // A connection's account; holds may outlive it.
  class Client {
   public:
    Client() = default;
    // The limit that `more` would exceed, or nullopt.
    std::optional<Scope> Exceeded(Resource, size_t more) const;
    // The same, and counts it as a refusal.
    std::optional<Scope> WhyNot(Resource, size_t more) const;
    void CountRefused(Resource, Scope) const;
    Hold Take(Resource, size_t amount) const;  // not checked against the limits
    size_t used(Resource) const;
    const std::string& peer() const;

   private:
    friend class Admission;
    std::shared_ptr<Account> account_;
  };

  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}
  ~Admission();  // all holds must have been given back
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  Client Open(const PeerAddress&);
  const AdmissionLimits& limits() const { return limits_; }
  size_t used(Resource resource) const { return used_[static_cast<size_t>(resource)]; }
  uint64_t refused(Resource resource, Scope scope) const {
    return refused_[static_cast<size_t>(resource)][static_cast<size_t>(scope)];
  }
  size_t peers() const { return peers_.size(); }  // those with a connection or a hold

 private:
  using Used = std::array<size_t, kResources>;
  const AdmissionLimits limits_;
  Used used_{};
  std::array<std::array<uint64_t, kScopes>, kResources> refused_{};
  std::map<std::string, std::weak_ptr<Peer>> peers_;
};

}  // namespace larder::serving::admission
