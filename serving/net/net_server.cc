#include "serving/net/net_server.h"

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"

namespace larder::serving::inline net {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kReadBytes = size_t{64} << 10;  // per read; one buffer for all connections
constexpr int kReadsInARow = 4;                  // before other clients have their turn
constexpr auto kSweepEvery = std::chrono::milliseconds(100);
// A client that still sends when we close would get a reset and lose the answer. So its bytes are
// read and thrown away for a moment.
constexpr double kLingerS = 2;
constexpr size_t kLingerBytes = size_t{4} << 20;
constexpr size_t kSendBytes = size_t{256} << 10;  // per write, so that other clients have their
                                                  // turn

int64_t Ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

std::string Describe(const tcp::socket& socket) {
  error_code ec;
  const auto end = socket.remote_endpoint(ec);
  return ec ? "a client that is gone" : fmt::format("{}:{}", end.address().to_string(), end.port());
}

}  // namespace

struct NetServer::Impl {
  Impl(Admission& budget, Failures& count) : admission(budget), failures(count) {}
  struct Connection;
  struct Listener {
    Listener(asio::io_context& io, ListenerOptions listen, SessionFactory make)
        : options(std::move(listen)), factory(std::move(make)), acceptor(io), retry(io) {}
    ListenerOptions options;
    SessionFactory factory;
    tcp::acceptor acceptor;
    asio::steady_timer retry;
    std::unordered_set<std::shared_ptr<Connection>> open;
  };

  void Accept(Listener&);
  void Add(Listener&, tcp::socket);
  void Sweep();
  bool MakeRoom(const Listener* of, const std::string& peer);
  // Runs the function; an exception is counted, and the result is false.
  template <typename What>
  bool Try(What&& what) noexcept;
  void Repeat(const std::shared_ptr<asio::steady_timer>&, std::chrono::nanoseconds,
              std::function<void()>);
  void WaitReadable(const std::shared_ptr<asio::posix::stream_descriptor>&, std::function<void()>);

  asio::io_context io{1};
  std::vector<std::unique_ptr<Listener>> listeners;
  std::vector<std::shared_ptr<asio::steady_timer>> timers;
  std::vector<std::shared_ptr<asio::posix::stream_descriptor>> watched;
  std::array<char, kReadBytes> buffer;  // used by the connection that is reading
  bool closing_idle = false;
  Admission& admission;
  Failures& failures;
  std::function<void()> between_turns;
};

template <typename What>
bool NetServer::Impl::Try(What&& what) noexcept {
  try {
    what();
    return true;
  } catch (const std::exception& error) {
    failures.Count("I/O thread", error.what());
    return false;
  }
}

// One client. The listener's set and its pending operations keep it alive.
struct NetServer::Impl::Connection final : Wire, std::enable_shared_from_this<Connection> {
  Connection(Impl& of, Listener& from, tcp::socket s, Admission::Client who)
      : impl(of),
        listener(from),
        socket(std::move(s)),
        name(Describe(socket)),
        account(std::move(who)),
        place(account.Take(Resource::kConnections, 1)),
        held(account.Take(Resource::kBytes, 0)),
        last_turn_ns(NowNs()) {}

  // A client's turn: its work is bounded, and an exception ends only this connection.
  template <typename What>
  void Take(What&& what) {
    if (!impl.Try(what)) Drop();
    impl.Try([this] {
      CountHeld();
      if (impl.between_turns) impl.between_turns();
    });
  }

  void Begin() {
    Take([this] {
      session = listener.factory(*this);
      WaitToRead();
    });
  }

  // A client that leaves too much unread is dropped by the next sweep, never while the session is
  // running.
  void Write(std::string_view bytes) override {
    if (state != State::kOpen || broken) return;
    if (unsent() > 0 && (unsent() + bytes.size() > listener.options.limits.unsent_bytes ||
                         account.WhyNot(Resource::kBytes, bytes.size()))) {
      broken = true;
      return;
    }
    if (out.empty()) last_sent_ns = NowNs();
    if (!impl.Try([&] { out += bytes; })) {
      broken = true;
      return;
    }
    if (!waiting_to_write) Send();
    if (unsent() > 0) CountHeld();
  }

  bool full() const override {
    return state != State::kOpen || broken || unsent() > listener.options.limits.full_bytes;
  }

  void Later() override {
    if (later || state != State::kOpen) return;
    later = true;
    asio::post(impl.io, [self = shared_from_this()] {
      self->later = false;
      self->OnTurn();
    });
  }

  const Admission::Client& client() const override { return account; }

  void OnTurn() {
    if (state != State::kOpen || full()) return;
    Take([this] {
      session->OnTurn();
      WaitToRead();
    });
  }

  void Close() override {
    if (state != State::kOpen) return;
    state = State::kClosing;
    asio::post(impl.io, [self = shared_from_this()] { self->CloseIfSent(); });
  }
  const std::string& peer() const override { return name; }

  size_t unsent() const { return out.size() - sent; }

  void Send() {
    for (size_t now = 0; sent < out.size();) {
      error_code ec;
      const size_t n =
          now < kSendBytes ? socket.write_some(asio::buffer(out.data() + sent, unsent()), ec) : 0;
      now += n;
      if (ec == asio::error::would_block || (n == 0 && !ec)) {
        waiting_to_write = true;
        socket.async_wait(tcp::socket::wait_write, [self = shared_from_this()](error_code waited) {
          self->waiting_to_write = false;
          if (waited || self->state == State::kGone) return;
          self->Send();
          self->CloseIfSent();
          self->OnTurn();
        });
        return;
      }
      if (ec) {
        broken = true;
        asio::post(impl.io, [self = shared_from_this()] { self->Drop(); });
        break;
      }
      last_sent_ns = NowNs();
      sent += n;
    }
    out.clear();
    if (out.capacity() > kReadBytes) out.shrink_to_fit();
    sent = 0;
  }

  void CloseIfSent() {
    if (state != State::kClosing || unsent() > 0) return;
    session = nullptr;
    CountHeld();
    error_code ignored;
    if (end_of_input) {
      Drop();
      return;
    }
    socket.shutdown(tcp::socket::shutdown_send, ignored);
    state = State::kLingering;
    last_turn_ns = NowNs();
    WaitToRead();
  }

  // Ends the connection now, even with unsent bytes.
  void Drop() {
    if (state == State::kGone) return;
    state = State::kGone;
    session = nullptr;
    out = {};
    sent = 0;
    CountHeld();
    place.Resize(0);
    error_code ignored;
    socket.close(ignored);
    listener.open.erase(shared_from_this());
    if (listener.options.count_changed) listener.options.count_changed(listener.open.size());
  }

  bool Readable() const {
    if (end_of_input || broken) return false;
    return state == State::kLingering ||
           (state == State::kOpen && !full() && session->wants_bytes());
  }

  void WaitToRead() {
    if (waiting_to_read || !Readable()) return;
    waiting_to_read = true;
    socket.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code ec) {
      self->waiting_to_read = false;
      if (!ec && self->state != State::kGone) self->Take([&] { self->Read(); });
    });
  }

  void Read() {
    for (int i = 0; i < kReadsInARow && Readable(); ++i) {
      error_code ec;
      const size_t n = socket.read_some(asio::buffer(impl.buffer), ec);
      if (ec == asio::error::would_block) break;
      if (ec == asio::error::eof) {
        end_of_input = true;
        if (state == State::kOpen) {
          session->OnEndOfInput();
          WatchForReset();
        } else {
          Drop();
        }
        return;
      }
      if (ec) {
        Drop();
        return;
      }
      if (state == State::kLingering) {
        lingered += n;
        if (lingered > kLingerBytes) Drop();
      } else {
        const Turn before = session->turn();
        const uint64_t requests = session->requests();
        session->OnBytes({impl.buffer.data(), n});
        if (session->turn() != before || session->requests() != requests) last_turn_ns = NowNs();
        CountHeld();
        if (state != State::kOpen || held.amount() == 0) continue;
        if (const auto scope = account.WhyNot(Resource::kBytes, 0)) {
          session->OnNoRoom(*scope);
          Close();
        }
      }
    }
    WaitToRead();
  }

  // Behind the end of its input, a client that is gone answers what it is sent with a reset.
  void WatchForReset() {
    if (state == State::kGone) return;
    socket.async_wait(tcp::socket::wait_error,
                      [self = shared_from_this()](error_code) { self->Drop(); });
  }

  void CountHeld() { held.Resize((session ? session->held_bytes() : 0) + unsent()); }

  // Whether the connection can end now without cutting off a request or an answer.
  bool Idle() const {
    return state == State::kLingering ||
           (state == State::kOpen && unsent() == 0 && session && session->turn() == Turn::kIdle);
  }

  // Applies time limits, and drops connections that were marked broken.
  void Sweep(int64_t now) {
    if (broken) return Drop();
    CountHeld();
    const ConnectionLimits& limits = listener.options.limits;
    if (state == State::kLingering) {
      if (now - last_turn_ns > Ns(kLingerS)) Drop();
      return;
    }
    if (unsent() > 0 && now - last_sent_ns > Ns(limits.send_s)) return Drop();
    if (state != State::kOpen) return;
    const Turn turn = session->turn();
    if (turn != seen_turn) {
      seen_turn = turn;
      last_turn_ns = std::max(last_turn_ns, now - kSweepNs);
    }
    if (turn == Turn::kIdle && impl.closing_idle) return Close();
    const double limit = turn == Turn::kIdle ? limits.idle_s : limits.receive_s;
    if (turn != Turn::kAnswering && now - last_turn_ns > Ns(limit)) {
      session->OnTimeout();
      Close();
      return;
    }
    if (turn == Turn::kAnswering &&
        now - std::max({last_sent_ns, last_turn_ns, last_quiet_ns}) > Ns(limits.quiet_s)) {
      last_quiet_ns = now;
      session->OnQuiet();
    }
    WaitToRead();  // the session may want bytes again
  }

  static constexpr int64_t kSweepNs = std::chrono::nanoseconds(kSweepEvery).count();
  enum class State { kOpen, kClosing, kLingering, kGone };
  Impl& impl;
  Listener& listener;
  tcp::socket socket;
  const std::string name;
  const Admission::Client account;
  Admission::Hold place, held;  // held: the bytes that the session keeps and those that are unsent
  std::unique_ptr<Session> session;
  State state = State::kOpen;
  bool waiting_to_read = false, waiting_to_write = false, end_of_input = false;
  bool broken = false;  // to be dropped at the next sweep
  bool later = false;   // OnTurn is posted
  std::string out;      // bytes to send, from `sent` on
  size_t sent = 0, lingered = 0;
  int64_t last_turn_ns, last_sent_ns = 0, last_quiet_ns = 0;
  Turn seen_turn = Turn::kIdle;
};

void NetServer::Impl::Accept(Listener& listener) {
  listener.acceptor.async_accept([this, &listener](error_code ec, tcp::socket socket) {
    if (ec == asio::error::operation_aborted || !listener.acceptor.is_open()) return;
    if (ec) {  // most likely no descriptors are left: an idle connection has to go first
      if (ec == asio::error::no_descriptors) MakeRoom(nullptr, "");
      listener.retry.expires_after(kSweepEvery);
      listener.retry.async_wait([this, &listener](error_code stopped) {
        if (!stopped) Accept(listener);
      });
      return;
    }
    Try([&] {
      Add(listener, std::move(socket));
      if (between_turns) between_turns();
    });
    Accept(listener);
  });
}

void NetServer::Impl::Add(Listener& listener, tcp::socket socket) {
  error_code ec;
  socket.non_blocking(true, ec);
  if (!ec) socket.set_option(tcp::no_delay(true), ec);
  if (ec) return;
  const auto end = socket.remote_endpoint(ec);
  if (ec) return;  // gone
  Admission::Client client = admission.Open(PeerOf(end.address().to_string()));
  const auto turn_away = [&](Scope scope, const std::string& why, int status) {
    client.CountRefused(Resource::kConnections, scope);
    if (listener.options.turned_away) listener.options.turned_away(status);
    socket.write_some(asio::buffer(why), ec);
    socket.shutdown(tcp::socket::shutdown_send, ec);
  };
  if (client.Exceeded(Resource::kConnections, 1) && !MakeRoom(nullptr, client.peer()))
    return turn_away(Scope::kPeer, listener.options.when_peer_full, 429);
  if (listener.open.size() >= listener.options.limits.connections && !MakeRoom(&listener, ""))
    return turn_away(Scope::kAll, listener.options.when_full, 503);
  auto connection =
      std::make_shared<Connection>(*this, listener, std::move(socket), std::move(client));
  listener.open.insert(connection);
  if (listener.options.count_changed) listener.options.count_changed(listener.open.size());
  connection->Begin();
}

// Ends the connection that has been idle longest, among those of a listener and a peer if they are
// given. Returns false if none is idle.
bool NetServer::Impl::MakeRoom(const Listener* of, const std::string& peer) {
  std::shared_ptr<Connection> longest;
  for (const auto& listener : listeners) {
    if (of != nullptr && listener.get() != of) continue;
    for (const auto& one : listener->open) {
      if (!peer.empty() && one->account.peer() != peer) continue;
      if (one->Idle() && (!longest || one->last_turn_ns < longest->last_turn_ns)) longest = one;
    }
  }
  if (longest) longest->Drop();
  return longest != nullptr;
}

void NetServer::Impl::Sweep() {
  const int64_t now = NowNs();
  for (const auto& listener : listeners) {
    const std::vector<std::shared_ptr<Connection>> all(listener->open.begin(),
                                                       listener->open.end());
    for (const auto& connection : all) {
      if (!Try([&] { connection->Sweep(now); })) connection->Drop();
    }
  }
}

void NetServer::Impl::Repeat(const std::shared_ptr<asio::steady_timer>& timer,
                             std::chrono::nanoseconds every, std::function<void()> what) {
  timer->expires_after(every);
  timer->async_wait([this, timer, every, what = std::move(what)](error_code ec) {
    if (ec) return;
    Try(what);
    Repeat(timer, every, what);
  });
}

void NetServer::Impl::WaitReadable(const std::shared_ptr<asio::posix::stream_descriptor>& fd,
                                   std::function<void()> readable) {
  fd->async_wait(asio::posix::stream_descriptor::wait_read,
                 [this, fd, readable = std::move(readable)](error_code ec) {
                   if (ec) return;
                   Try(readable);
                   WaitReadable(fd, readable);
                 });
}

NetServer::NetServer(Admission& admission, Failures& failures)
    : impl_(std::make_unique<Impl>(admission, failures)) {
  Every(std::chrono::duration<double>(kSweepEvery).count(), [this] { impl_->Sweep(); });
}

NetServer::~NetServer() { Close(); }

void NetServer::Close() {
  Unwatch();
  StopListening();
  for (const auto& listener : impl_->listeners) {
    const auto open = std::exchange(listener->open, {});
    for (const auto& connection : open) connection->Drop();
  }
}

uint16_t NetServer::Listen(ListenerOptions options, SessionFactory factory) {
  const std::string where = fmt::format("{}:{}", options.host, options.port);
  error_code ec;
  tcp::resolver resolver(impl_->io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, ec);
  if (ec || found.empty()) throw Error("can't listen on {}: {}", where, ec.message());
  const tcp::endpoint endpoint = found.begin()->endpoint();
  auto listener =
      std::make_unique<Impl::Listener>(impl_->io, std::move(options), std::move(factory));
  listener->acceptor.open(endpoint.protocol(), ec);
  if (!ec) listener->acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec && listener->options.v6_only && endpoint.protocol() == tcp::v6())
    listener->acceptor.set_option(asio::ip::v6_only(true), ec);
  if (!ec) listener->acceptor.bind(endpoint, ec);
  if (!ec) listener->acceptor.listen(tcp::acceptor::max_listen_connections, ec);
  if (ec)
    throw Error("can't listen on {}: {}; choose another with --host, --port and --text-port", where,
                ec.message());
  impl_->Accept(*listener);
  impl_->listeners.push_back(std::move(listener));
  return impl_->listeners.back()->acceptor.local_endpoint().port();
}

void NetServer::StopListening() {
  error_code ignored;
  for (const auto& listener : impl_->listeners) listener->acceptor.close(ignored);
}

void NetServer::CloseIdle() { impl_->closing_idle = true; }

size_t NetServer::connections() const {
  size_t open = 0;
  for (const auto& listener : impl_->listeners) open += listener->open.size();
  return open;
}

void NetServer::Run() {
  // Runs again if the network library itself threw.
  while (!impl_->Try([this] { impl_->io.run(); })) {
  }
}
void NetServer::Stop() { impl_->io.stop(); }
void NetServer::Post(std::function<void()> what) {
  asio::post(impl_->io, [impl = impl_.get(), what = std::move(what)] {
    impl->Try(what);
    if (impl->between_turns) impl->Try(impl->between_turns);
  });
}
void NetServer::BetweenTurns(std::function<void()> what) { impl_->between_turns = std::move(what); }

void NetServer::Watch(int fd, std::function<void()> readable) {
  impl_->watched.push_back(std::make_shared<asio::posix::stream_descriptor>(impl_->io, fd));
  impl_->WaitReadable(impl_->watched.back(), std::move(readable));
}

void NetServer::Unwatch() {
  for (const auto& fd : impl_->watched) fd->release();
  impl_->watched.clear();
}

void NetServer::Every(double seconds, std::function<void()> what) {
  impl_->timers.push_back(std::make_shared<asio::steady_timer>(impl_->io));
  impl_->Repeat(impl_->timers.back(), std::chrono::nanoseconds(Ns(seconds)), std::move(what));
}

}  // namespace larder::serving::net
