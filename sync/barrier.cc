// Set-up of the barrier: who waits for whom.
#include "sync/barrier.h"

#include <algorithm>

#include "base/error.h"

namespace larder::sync {
namespace {

// The members' lists of each name, by first appearance.
std::vector<std::vector<size_t>> Meetings(std::span<const size_t> members,
                                          std::span<const int> name_of_thread) {
  std::vector<int> names;
  std::vector<std::vector<size_t>> meetings;
  for (const size_t member : members) {
    const int name = name_of_thread.empty() ? 0 : name_of_thread[member];
    const auto at = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (at == names.size()) {
      names.push_back(name);
      meetings.emplace_back();
    }
    meetings[at].push_back(member);
  }
  return meetings;
}

}  // namespace

BarrierShape BarrierShape::Of(std::span<const int> group_of_thread,
                              std::span<const int> package_of_thread) {
  const size_t threads = group_of_thread.size();
  if (threads == 0) throw Error("barrier: no threads; expected at least 1");
  if (!package_of_thread.empty() && package_of_thread.size() != threads)
    throw Error("barrier: {} threads, but {} packages; expected one for each, or none", threads,
                package_of_thread.size());
  BarrierShape shape;
  shape.seats.resize(threads);
  shape.flags = threads;
  // The first of those that meet waits for the others, then lets them go on. Those of a lower level
  // are let go last: so each level's release stands before those of the levels below.
  std::vector<size_t> firsts(threads);
  for (size_t t = 0; t < threads; ++t) firsts[t] = t;
  const auto level = [&](std::span<const int> names) {
    std::vector<size_t> next;
    for (const std::vector<size_t>& meeting : Meetings(firsts, names)) {
      next.push_back(meeting.front());
      if (meeting.size() == 1) continue;
      Seat& first = shape.seats[meeting.front()];
      std::copy_backward(first.release.begin(), first.release.end() - 1, first.release.end());
      first.release[0] = static_cast<uint32_t>(shape.flags);
      ++first.releases;
      for (size_t i = 1; i < meeting.size(); ++i) {
        first.fan_in.push_back(static_cast<uint32_t>(meeting[i]));
        shape.seats[meeting[i]].await_release = static_cast<int32_t>(shape.flags);
      }
      ++shape.flags;
    }
    firsts = std::move(next);
    return firsts.size();
  };
  shape.groups = level(group_of_thread);
  shape.packages = level(package_of_thread);
  level({});
  for (Seat& seat : shape.seats) std::ranges::sort(seat.fan_in);
  if (shape.groups == 1 && threads > 1 && threads <= TreeBarrier::kExchangeThreads) {
    for (size_t t = 0; t < threads; ++t) {
      shape.seats[t] = {.exchange = true};
      for (size_t other = 0; other < threads; ++other)
        if (other != t) shape.seats[t].fan_in.push_back(static_cast<uint32_t>(other));
    }
  }
  return shape;
}

}  // namespace larder::sync
