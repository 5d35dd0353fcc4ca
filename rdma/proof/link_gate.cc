#include "rdma/proof/link_gate.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "rdma/proof/link_warning.h"
#include "rdma/proof/tcp_connection.h"

namespace larder::rdma::inline proof {
namespace {

// The pause after accept4() failed for lack of descriptors or memory. The listener stays readable,
// so trying again at once would be a busy loop.
constexpr int64_t kAcceptPauseNs = 100'000'000;

// Sends a few bytes to a peer that may not be reading. They fit an empty buffer; if they do not,
// the connection is dropped.
bool SendNow(const Descriptor& connection, const void* bytes, size_t count) {
  return send(connection.get(), bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(count);
}

template <typename Message>
Message From(const std::vector<std::byte>& bytes) {
  Message message;
  std::memcpy(static_cast<void*>(&message), bytes.data(), sizeof(message));
  return message;
}

}  // namespace

void LinkGate::Add(Descriptor connection, std::string who) {
  if (pending_.size() == kPlaces) {
    auto out = std::min_element(pending_.begin(), pending_.end(),
                                [](const Pending& a, const Pending& b) { return a.step < b.step; });
    Turn(*out, "dropped for a newer connection: more come than can be set up at once");
    pending_.erase(out);
  }
  Pending& added = pending_.emplace_back();
  added.connection = std::move(connection);
  added.who = std::move(who);
  StartStep(added, Step::kGreeting, sizeof(Greeting));
}

void LinkGate::StartStep(Pending& pending, Step step, size_t bytes) {
  pending.step = step;
  pending.bytes.assign(bytes, std::byte{});
  pending.have = 0;
  pending.until_ns = NowNs() + int64_t{setup_.step_ms} * 1'000'000;
}

void LinkGate::Turn(const Pending& pending, const std::string& why) {
  last_ = fmt::format("{}: {}", pending.who, why);
  WarnOfLink(LinkWarning::kStranger, fmt::format("{}: {}", setup_.what, last_));
}

// Accepts a few connections only. Then all pending ones are read, so that a new connection that has
// sent its greeting advances beyond those that have sent nothing, which are dropped first.
void LinkGate::AcceptAll() {
  for (size_t i = 0; i < kPlaces / 4; ++i) {
    Descriptor connection(accept4(setup_.listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!connection) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) {
        accept_after_ns_ = NowNs() + kAcceptPauseNs;
        last_ = fmt::format("no connection can be accepted: {}", std::strerror(errno));
        WarnOfLink(LinkWarning::kStranger, fmt::format("{}: {}", setup_.what, last_));
      }
      return;
    }
    std::string who;
    if (const std::string wrong = setup_.admit(connection, &who); !wrong.empty()) {
      Pending out;
      out.who = std::move(who);
      Turn(out, wrong);
      continue;
    }
    Add(std::move(connection), std::move(who));
  }
}

// Reads what has arrived, and takes the steps that are complete.
LinkGate::Progress LinkGate::Read(Pending& pending) {
  for (;;) {
    const ssize_t received = recv(pending.connection.get(), pending.bytes.data() + pending.have,
                                  pending.bytes.size() - pending.have, MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && errno == EAGAIN) return Progress::kWaits;
    if (received <= 0) {
      // A peer that gave up, or only looked whether the port is open, is not worth a line in the
      // log.
      return Progress::kGone;
    }
    pending.have += static_cast<size_t>(received);
    if (pending.have < pending.bytes.size()) continue;
    const Progress progress = Finish(pending);
    if (progress != Progress::kWaits) return progress;
  }
}

// Handles a step whose bytes have all arrived.
LinkGate::Progress LinkGate::Finish(Pending& pending) {
  switch (pending.step) {
    case Step::kGreeting: {
      const auto greeting = From<Greeting>(pending.bytes);
      if (setup_.kind == ConnectionKind::kData) {
        if (IsDataGreeting(*setup_.session, greeting)) return Progress::kArrived;
        // A control connection of another connector of this listener is dropped without a warning;
        // it retries.
        if (greeting.magic != kWireMagic) pending.wrong = "is another program";
        if (greeting.kind == ConnectionKind::kData)
          pending.wrong = "brings the second connection of another link";
        return Progress::kGone;
      }
      pending.wrong = pending.verifier.Meet(*setup_.key, greeting, setup_.kind);
      if (!pending.wrong.empty()) return Progress::kGone;
      const Challenge& challenge = pending.verifier.challenge();
      if (!SendNow(pending.connection, &challenge, sizeof(challenge))) return Progress::kGone;
      StartStep(pending, Step::kProof, sizeof(Mac));
      return Progress::kWaits;
    }
    case Step::kProof: {
      if (!pending.verifier.Believes(From<Mac>(pending.bytes))) {
        pending.wrong =
            setup_.key->open()
                ? "uses a link key, and this process has none: give both the same link.key, or "
                  "neither"
                : "does not prove that it knows this cluster's key: a stranger, or a socket with "
                  "another link.key, or without one";
        return Progress::kGone;
      }
      const Mac& proof = pending.verifier.proof();
      if (!SendNow(pending.connection, proof.data(), proof.size())) return Progress::kGone;
      StartStep(pending, Step::kHello, setup_.hello_bytes);
      return Progress::kWaits;
    }
    case Step::kHello:
      if (pending.verifier.session().Sealed(kConnectorHello, pending.bytes.data(),
                                            pending.bytes.size()))
        return Progress::kArrived;
      pending.wrong = "sent a hello that was changed on the way";
      return Progress::kGone;
  }
  return Progress::kGone;
}

std::optional<Guest> LinkGate::Next(int64_t deadline_ns) {
  for (;;) {
    // All pending connections are read first, since some may have been readable before this call.
    int64_t until_ns = deadline_ns;
    for (auto pending = pending_.begin(); pending != pending_.end();) {
      const Progress progress = Read(*pending);
      if (progress == Progress::kArrived) {
        Guest guest{std::move(pending->connection), std::move(pending->who),
                    pending->verifier.session(), std::move(pending->bytes)};
        pending_.erase(pending);
        return guest;
      }
      if (progress == Progress::kWaits && NowNs() >= pending->until_ns) {
        pending->wrong =
            fmt::format("did not send the next message of a link in {} ms", setup_.step_ms);
      }
      if (!pending->wrong.empty()) Turn(*pending, pending->wrong);
      if (progress == Progress::kGone || !pending->wrong.empty()) {
        pending = pending_.erase(pending);
        continue;
      }
      until_ns = std::min(until_ns, pending->until_ns);
      ++pending;
    }
    const int64_t now_ns = NowNs();
    if (now_ns >= deadline_ns) return std::nullopt;
    const bool paused = now_ns < accept_after_ns_;
    if (paused) until_ns = std::min(until_ns, accept_after_ns_);
    // poll() ignores a descriptor of -1. leave_fd is not watched for POLLIN: a sign of life may be
    // there.
    std::vector<pollfd> watched = {{setup_.stop_fd, POLLIN, 0},
                                   {setup_.leave_fd, POLLRDHUP, 0},
                                   {paused ? -1 : setup_.listener, POLLIN, 0}};
    for (const Pending& pending : pending_)
      watched.push_back({pending.connection.get(), POLLIN, 0});
    if (poll(watched.data(), watched.size(), LeftMs(until_ns)) < 0)
      continue;  // EINTR, or no memory
    stopped_ = watched[0].revents != 0;
    left_ = watched[1].revents != 0;
    if (stopped_ || left_) return std::nullopt;
    if (watched[2].revents != 0) AcceptAll();
  }
}

}  // namespace larder::rdma::proof
