#include "node/service.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <systemd/sd-daemon.h>

#include <chrono>

#include "base/clock.h"
#include "base/error.h"

namespace larder::node {
namespace {

// Pings and the watch for progress in one rhythm: a ping is at most a quarter late.
constexpr int64_t kPingsPerInterval = 4;

// The notification protocol is lines; a text with line ends could say READY=1 itself.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

void Notify(const std::string& lines) { sd_notify(0, lines.c_str()); }  // nobody listens: nothing happens

}  // namespace

bool ProgressWatch::Alive(const pipeline::SocketStatus& status, int64_t now_ns) {
  const uint64_t finished = status.frames_finished.load(std::memory_order_relaxed);
  const uint64_t started = status.frames_started.load(std::memory_order_relaxed);
  if (since_ns_ < 0 || finished != finished_ || started != started_ || started <= finished) {
    since_ns_ = now_ns;
    started_ = started;
    finished_ = finished;
    return true;
  }
  return now_ns - since_ns_ < patience_ns_;
}

Service::Service(SocketFacts facts, const pipeline::SocketStatus& status) : status_(status) {
  LogToJournal(facts);
  try {
    status_socket_ = std::make_unique<StatusSocket>(std::move(facts), status);
  } catch (const StatusNameTaken&) {
    throw;
  } catch (const Error& error) {
    spdlog::warn("{}; `larder status` will not see this process", error.what());
  }
  uint64_t interval_us = 0;
  if (sd_watchdog_enabled(0, &interval_us) > 0)
    watchdog_ = std::thread([this, interval_us] { Watchdog(static_cast<int64_t>(interval_us) * 1000); });
}

Service::~Service() {
  Notify("STOPPING=1");
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (watchdog_.joinable()) watchdog_.join();
}

void Service::Ready(const std::string& text) { Notify(fmt::format("READY=1\nSTATUS={}", OneLine(text))); }
void Service::Describe(const std::string& text) { Notify(fmt::format("STATUS={}", OneLine(text))); }
void Service::Stopping(const std::string& text) {
  Notify(fmt::format("STOPPING=1\nSTATUS={}", OneLine(text)));
}

// A frame may take WatchdogSec: pings stop when one has been in flight for half of it, and systemd counts
// another whole one from the last ping.
void Service::Watchdog(int64_t interval_ns) {
  ProgressWatch watch(interval_ns / 2);
  bool alive = true;
  for (std::unique_lock lock(mutex_); !stop_;
       wake_.wait_for(lock, std::chrono::nanoseconds(interval_ns / kPingsPerInterval))) {
    const bool now_alive = watch.Alive(status_, NowNs());
    if (now_alive) Notify("WATCHDOG=1");
    if (alive && !now_alive) spdlog::error("a frame has not been finished for {} s", interval_ns / 2e9);
    alive = now_alive;
  }
}

}  // namespace larder::node
