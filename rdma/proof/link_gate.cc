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
#include "rdma/proof/tcp_socket.h"

namespace larder::rdma::internal {
namespace {

// No descriptors or memory for another connection: the listener stays readable, so looking again at once
// would be a loop at full speed.
constexpr int64_t kAcceptPauseNs = 100'000'000;

// A few bytes to somebody who may not read: they fit an empty socket, or he has to go.
bool SendNow(const Descriptor& connection, const void* bytes, size_t count) {
  return send(connection.get(), bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(count);
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
    Turn(*out, "makes room: more connections than can be set up at once");
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

// A few: then those who wait here get their turn, and who just came and has said something gets beyond those
// who have not, which make room first.
void LinkGate::AcceptAll() {
  for (size_t i = 0; i < kPlaces / 4; ++i) {
    Descriptor connection(accept4(setup_.listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!connection) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) {
        accept_after_ns_ = NowNs() + kAcceptPauseNs;
        last_ = fmt::format("no connection can be taken: {}", std::strerror(errno));
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

// What has come, as far as the next step.
LinkGate::Progress LinkGate::Read(Pending& pending) {
  for (;;) {
    const ssize_t received = recv(pending.connection.get(), pending.bytes.data() + pending.have,
                                  pending.bytes.size() - pending.have, MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && errno == EAGAIN) return Progress::kWaits;
    if (received <= 0) {
      // One that gave up, or looked whether the port is open, is not worth a line; unless it was about to
      // prove itself: then it has seen that this listener is none of its own.
      return Progress::kGone;
    }
    pending.have += static_cast<size_t>(received);
    if (pending.have < pending.bytes.size()) continue;
    const Progress progress = Finish(pending);
    if (progress != Progress::kWaits) return progress;
  }
}

// All bytes of a step are there.
LinkGate::Progress LinkGate::Finish(Pending& pending) {
  switch (pending.step) {
    case Step::kGreeting: {
      const auto greeting = From<Greeting>(pending.bytes);
      if (setup_.kind == ConnectionKind::kData) {
        if (IsDataGreeting(*setup_.session, greeting)) return Progress::kArrived;
        // Another connector of this listener comes again; it is no stranger for coming now.
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
                ? "uses a link key, and this process has none: give both the same link.key, or neither one"
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
      if (pending.verifier.session().Sealed(kConnectorHello, pending.bytes.data(), pending.bytes.size()))
        return Progress::kArrived;
      pending.wrong = "sent a hello that somebody changed on the way";
      return Progress::kGone;
  }
  return Progress::kGone;
}

std::optional<Guest> LinkGate::Next(int64_t deadline_ns) {
  for (;;) {
    // Who has come or said something; somebody may have been ready before this call.
    int64_t until_ns = deadline_ns;
    for (auto pending = pending_.begin(); pending != pending_.end();) {
      const Progress progress = Read(*pending);
      if (progress == Progress::kArrived) {
        Guest guest{std::move(pending->connection), std::move(pending->who), pending->verifier.session(),
                    std::move(pending->bytes)};
        pending_.erase(pending);
        return guest;
      }
      if (progress == Progress::kWaits && NowNs() >= pending->until_ns) {
        pending->wrong = fmt::format("sent nothing that is a link's in {} ms", setup_.step_ms);
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
    // a descriptor of -1 is passed over; not POLLIN of leave_fd: its first sign of life may be there already
    std::vector<pollfd> watched = {{setup_.stop_fd, POLLIN, 0},
                                   {setup_.leave_fd, POLLRDHUP, 0},
                                   {paused ? -1 : setup_.listener, POLLIN, 0}};
    for (const Pending& pending : pending_) watched.push_back({pending.connection.get(), POLLIN, 0});
    if (poll(watched.data(), watched.size(), LeftMs(until_ns)) < 0) continue;  // EINTR, or no memory
    stopped_ = watched[0].revents != 0;
    left_ = watched[1].revents != 0;
    if (stopped_ || left_) return std::nullopt;
    if (watched[2].revents != 0) AcceptAll();
  }
}

}  // namespace larder::rdma::internal
