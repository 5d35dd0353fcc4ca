#include "serving/admission/admission.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <cstring>

#include "base/check.h"

namespace larder::serving::inline admission {

struct Admission::Peer {
  Peer(Admission& of, const PeerAddress& address)
      : admission(of),
        name(address.name),
        limited(of.limits_.loopback_is_a_peer || !address.loopback) {}
  ~Peer() { admission.peers_.erase(name); }
  Admission& admission;
  const std::string name;
  const bool limited;
  Used used{};
};

struct Admission::Account {
  std::shared_ptr<Peer> peer;
  Used used{};
};

const char* ResourceName(Resource resource) {
  switch (resource) {
    case Resource::kConnections:
      return "connections";
    case Resource::kRequests:
      return "requests";
    case Resource::kBytes:
      return "bytes";
    case Resource::kQueuedBytes:
      return "queued_bytes";
  }
  return "unknown";
}

const char* ScopeName(Scope scope) {
  return scope == Scope::kConnection ? "connection" : scope == Scope::kPeer ? "peer" : "all";
}

const Limit& AdmissionLimits::of(Resource resource) const {
  switch (resource) {
    case Resource::kConnections:
      return connections;
    case Resource::kRequests:
      return requests;
    case Resource::kBytes:
      return bytes;
    case Resource::kQueuedBytes:
      break;
  }
  return queued_bytes;
}

PeerAddress PeerOf(const std::string& address) {
  const std::string bare = address.substr(0, address.find('%'));
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET6, bare.c_str(), &v6) == 1) {
    if (!IN6_IS_ADDR_V4MAPPED(&v6)) {
      const bool loopback = IN6_IS_ADDR_LOOPBACK(&v6);
      std::memset(v6.s6_addr + 8, 0, 8);
      char text[INET6_ADDRSTRLEN];
      inet_ntop(AF_INET6, &v6, text, sizeof text);
      return {loopback ? "::1" : fmt::format("{}/64", text), loopback};
    }
    std::memcpy(&v4, v6.s6_addr + 12, sizeof v4);
  } else if (inet_pton(AF_INET, bare.c_str(), &v4) != 1) {
    return {address, false};
  }
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &v4, text, sizeof text);
  return {text, (ntohl(v4.s_addr) >> 24) == 127};
}

Admission::Hold& Admission::Hold::operator=(Hold&& other) noexcept {
  if (this != &other) {
    Resize(0);
    account_ = std::move(other.account_);
    resource_ = other.resource_;
    amount_ = std::exchange(other.amount_, 0);
  }
  return *this;
}

void Admission::Hold::Resize(size_t amount) {
  if (amount == amount_) return;
  const auto r = static_cast<size_t>(resource_);
  for (size_t* used :
       {&account_->used[r], &account_->peer->used[r], &account_->peer->admission.used_[r]}) {
    LARDER_CHECK(*used >= amount_, "{} given back twice", ResourceName(resource_));
    *used = *used - amount_ + amount;
  }
  amount_ = amount;
}

std::optional<Scope> Admission::Client::Exceeded(Resource resource, size_t more) const {
  const auto r = static_cast<size_t>(resource);
  const Peer& peer = *account_->peer;
  const Admission& admission = peer.admission;
  const Limit& limit = admission.limits_.of(resource);
  const auto over = [more](size_t used, size_t most) {
    return most != kNoLimit && used + more > most;
  };
  if (over(account_->used[r], limit.connection)) return Scope::kConnection;
  if (resource == Resource::kBytes && account_->used[r] + more <= admission.limits_.free_bytes)
    return std::nullopt;
  if (peer.limited && over(peer.used[r], limit.peer)) return Scope::kPeer;
  if (over(admission.used_[r], limit.all)) return Scope::kAll;
  return std::nullopt;
}

std::optional<Scope> Admission::Client::WhyNot(Resource resource, size_t more) const {
  const auto scope = Exceeded(resource, more);
  if (scope) CountRefused(resource, *scope);
  return scope;
}

void Admission::Client::CountRefused(Resource resource, Scope scope) const {
  ++account_->peer->admission.refused_[static_cast<size_t>(resource)][static_cast<size_t>(scope)];
}

Admission::Hold Admission::Client::Take(Resource resource, size_t amount) const {
  Hold hold;
  hold.account_ = account_;
  hold.resource_ = resource;
  hold.Resize(amount);
  return hold;
}

size_t Admission::Client::used(Resource resource) const {
  return account_->used[static_cast<size_t>(resource)];
}

const std::string& Admission::Client::peer() const { return account_->peer->name; }

Admission::~Admission() {
  for (size_t r = 0; r < kResources; ++r)
    LARDER_CHECK(used_[r] == 0, "{} {} were never given back", used_[r],
                 ResourceName(static_cast<Resource>(r)));
}

Admission::Client Admission::Open(const PeerAddress& address) {
  Client client;
  client.account_ = std::make_shared<Account>();
  std::weak_ptr<Peer>& known = peers_[address.name];
  client.account_->peer = known.lock();
  if (!client.account_->peer) {
    client.account_->peer = std::make_shared<Peer>(*this, address);
    known = client.account_->peer;
  }
  return client;
}

}  // namespace larder::serving::admission
