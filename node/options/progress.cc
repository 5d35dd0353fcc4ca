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

// ", 40 s left"; empty while there is nothing to judge by.
std::string TimeLeft(double seconds, uint64_t done, uint64_t left) {
  if (done == 0 || seconds < 1) return "";
  const double left_s = seconds * static_cast<double>(left) / static_cast<double>(done);
  if (left_s < 90) return fmt::format(", {:.0f} s left", left_s);
  if (left_s < 90 * 60) return fmt::format(", {:.0f} min left", left_s / 60);
  return fmt::format(", {:.1f} h left", left_s / 3600);
}

}  // namespace

Progress::Progress(std::string what)
    : what_(std::move(what)), shown_(StderrIsTerminal()), start_ns_(NowNs()), last_ns_(start_ns_) {}

Progress::~Progress() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void Progress::Rename(std::string what) { what_ = std::move(what); }

void Progress::Update(uint64_t done, uint64_t all, bool unit_bytes) {
  if (!shown_ || all == 0) return;
  if (begun_at_ == UINT64_MAX) begun_at_ = done;  // a job that goes on does not begin at 0
  const int64_t now = NowNs();
  if (now - start_ns_ < kFirstDrawNs || now - last_ns_ < kRedrawNs) return;
  last_ns_ = now;
  drawn_ = true;
  const double share = static_cast<double>(done) / static_cast<double>(all);
  const auto full = static_cast<size_t>(share * static_cast<double>(kBarCells));
  const double seconds = SecondsSince(start_ns_);
  const std::string amount =
      unit_bytes
          ? fmt::format("{} of {}, {}/s", HumanBytes(static_cast<double>(done)),
                        HumanBytes(static_cast<double>(all)),
                        HumanBytes(static_cast<double>(done) / seconds))
          : fmt::format("{} of {}{}", done, all, TimeLeft(seconds, done - begun_at_, all - done));
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3.0f} %  {}\033[K", what_, "", full, "",
             kBarCells - full, 100 * share, amount);
  std::fflush(stderr);
}

}  // namespace larder::node::options
