#include "node/options/progress.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/clock.h"
#include "node/options/terminal.h"

namespace larder::node::inline options {
namespace {

constexpr int64_t kRedrawNs = 50'000'000;
constexpr int64_t kFirstDrawNs = 200'000'000;  // shorter work shows no bar
constexpr size_t kBarCells = 30;

}  // namespace

Progress::Progress(std::string what)
    : what_(std::move(what)), shown_(StderrIsTerminal()), start_ns_(NowNs()), last_ns_(start_ns_) {}

Progress::~Progress() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void Progress::Rename(std::string what) { what_ = std::move(what); }

void Progress::Update(uint64_t done, uint64_t all, bool unit_bytes) {
  if (!shown_ || all == 0) return;
  const int64_t now = NowNs();
  if (now - start_ns_ < kFirstDrawNs || now - last_ns_ < kRedrawNs) return;
  last_ns_ = now;
  drawn_ = true;
  const double share = static_cast<double>(done) / static_cast<double>(all);
  const auto full = static_cast<size_t>(share * static_cast<double>(kBarCells));
  const double seconds = SecondsSince(start_ns_);
  const std::string amount = unit_bytes ? fmt::format("{} of {}, {}/s", HumanBytes(static_cast<double>(done)),
                                                      HumanBytes(static_cast<double>(all)),
                                                      HumanBytes(static_cast<double>(done) / seconds))
                                        : fmt::format("{} of {}", done, all);
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3.0f} %  {}\033[K", what_, "", full, "", kBarCells - full,
             100 * share, amount);
  std::fflush(stderr);
}

}  // namespace larder::node::options
