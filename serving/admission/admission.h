// Admission: one budget for what clients make the server hold, whoever in the server holds it: their
// connections, their requests that have begun, the bytes that they have sent (not yet a request, waiting to
// be read, being read, the prompts that wait for a slot) or have not taken yet. Three limits for each: of a
// connection, of a peer's address (IPv6: its /64) and of all. Made before the first connection and there
// after the last; I/O thread.
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

namespace larder::serving {

enum class Resource {
  kConnections,
  kRequests,     // texts that are being generated or wait for a slot
  kBytes,        // all that is held of what came and of what is to be sent
  kQueuedBytes,  // of them, those of large requests that wait to be read by the background thread
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
  Limit connections{.peer = 64};                   // of all: ConnectionLimits, for each port
  Limit requests{.connection = 128, .peer = 128};  // of all: Service's queue
  Limit bytes{.connection = size_t{16} << 20, .peer = size_t{64} << 20, .all = size_t{256} << 20};
  // The background thread reads 5 to 10 MB/s: who comes last waits for seconds, not for a minute.
  Limit queued_bytes{.peer = size_t{8} << 20, .all = size_t{32} << 20};
  // So much of a connection's bytes is never too much, so that who asks for little is served while others
  // fill the house.
  size_t free_bytes = size_t{16} << 10;
  // A proxy and a load generator beside the server have one address: limits of a peer do not hold there.
  bool loopback_is_a_peer = false;

  const Limit& of(Resource) const;
};

// Whose connection it is. The name is the key of a peer.
struct PeerAddress {
  std::string name;
  bool loopback = false;
};
// "10.0.0.1", "::ffff:10.0.0.1" (the same), "2001:db8::1%eth0" (2001:db8::/64); what is no address is its own
// name.
PeerAddress PeerOf(const std::string& address);

class Admission {
  struct Peer;
  struct Account;

 public:
  // An amount of a resource, given back when it is dropped, once. I/O thread.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { Resize(0); }
    void Resize(size_t amount);  // whatever the limits say: it is held already
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
    // The limit that `more` would break, or none.
    std::optional<Scope> Exceeded(Resource, size_t more) const;
    // The same, counted as a refusal.
    std::optional<Scope> WhyNot(Resource, size_t more) const;
    void CountRefused(Resource, Scope) const;
    Hold Take(Resource, size_t amount) const;  // whatever the limits say
    size_t used(Resource) const;
    const std::string& peer() const;

   private:
    friend class Admission;
    std::shared_ptr<Account> account_;
  };

  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}
  ~Admission();  // nothing may be held any more
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  Client Open(const PeerAddress&);
  const AdmissionLimits& limits() const { return limits_; }
  size_t used(Resource resource) const { return used_[static_cast<size_t>(resource)]; }
  uint64_t refused(Resource resource, Scope scope) const {
    return refused_[static_cast<size_t>(resource)][static_cast<size_t>(scope)];
  }
  size_t peers() const { return peers_.size(); }  // that have a connection, or left something behind

 private:
  using Used = std::array<size_t, kResources>;
  const AdmissionLimits limits_;
  Used used_{};
  std::array<std::array<uint64_t, kScopes>, kResources> refused_{};
  std::map<std::string, std::weak_ptr<Peer>> peers_;
};

}  // namespace larder::serving
