// Two real processes: the link between them, and the state after one of them is killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/common/link_conformance.h"
#include "rdma/control/control_channel.h"
#include "rdma/control/peer_monitor.h"
#include "rdma/shm/process_testing.h"

namespace larder::rdma::inline shm {
namespace {

using sync::FaultCode;
using sync::WaitPolicy;

// Sends back the frames that arrive, and checks them. Returns the number of wrong bytes, at
// most 50.
int Echo(Side& side, uint32_t first, uint32_t count, const WaitPolicy& policy) {
  size_t wrong = 0;
  for (uint32_t n = first; n != first + count; ++n) {
    if (!side.in->WaitReceive(policy)) return 51;
    const sync::ReceivedFrame frame = side.in->BeginReceive();
    wrong += (frame.sequence != n) + WrongBytes(frame.bytes, side.in->frame_bytes(), n);
    if (!side.out->WaitSend(policy)) return 52;
    std::memcpy(side.out->BeginSend().bytes, frame.bytes, side.in->frame_bytes());
    side.out->EndSend();
    side.in->EndReceive();
  }
  return static_cast<int>(std::min<size_t>(wrong, 50));
}

TEST(TwoProcesses, OrderContentsOddSizesAndWrapAroundAsleepAndSpinning) {
  LARDER_SKIP_UNDER_TSAN();
  for (const size_t frame_bytes : {1, 63, 129, 12289}) {
    for (const size_t slots : {1, 3}) {
      const bool spins = frame_bytes == 129;  // few frames then: a hand-over may cost a time slice
      const uint32_t count = spins ? 30 : 500;
      const WaitPolicy policy = spins ? kSpin : kSleepAtOnce;
      const Shape shape = {{frame_bytes, slots}, 0u - 15};
      const std::string name = NewName();
      const pid_t child = Fork([&] {
        Side side = ConnectSide(name, shape);
        return Echo(side, shape.first_sequence, count, policy);
      });
      Side side = ListenSide(name, shape);
      uint32_t received = 0;
      size_t wrong = 0;
      for (uint32_t n = 0; n < count; ++n) {
        ASSERT_TRUE(side.out->WaitSend(policy));
        FillFrame(side.out->BeginSend().bytes, frame_bytes, shape.first_sequence + n);
        side.out->EndSend();
        if (n + 1 < slots) continue;  // keeps all slots in use
        for (; received <= n + 1 - slots || (n + 1 == count && received < count); ++received) {
          ASSERT_TRUE(side.in->WaitReceive(policy));
          const sync::ReceivedFrame frame = side.in->BeginReceive();
          wrong += frame.sequence != shape.first_sequence + received;
          wrong += WrongBytes(frame.bytes, frame_bytes, shape.first_sequence + received);
          side.in->EndReceive();
        }
      }
      EXPECT_EQ(received, count);
      EXPECT_EQ(wrong, 0u);
      EXPECT_TRUE(Exited(WaitFor(child), 0)) << frame_bytes << " x " << slots;
    }
  }
}

TEST(TwoProcesses, AWrongNumberFaultsBoth) {
  LARDER_SKIP_UNDER_TSAN();
  const Shape shape = {{64, 2}};
  const std::string name = NewName();
  const pid_t child = Fork([&] {
    Side side = ConnectSide(name, shape);
    return !side.in->WaitReceive(kSleepAtOnce) && side.in->fault().code == FaultCode::kSequence ? 0
                                                                                                : 1;
  });
  Side side = ListenSide(name, shape);
  const uint32_t wrong = 77;
  std::memcpy(side.out->BeginSend().bytes - kCacheLineBytes, &wrong, sizeof(wrong));
  reinterpret_cast<ShmLinkHeader*>(side.memory.data())->sent.count.store(1);
  const auto& sent = reinterpret_cast<ShmLinkHeader*>(side.memory.data())->sent.count;
  sync::internal::FutexWakeAll(sent);
  EXPECT_TRUE(Exited(WaitFor(child), 0));
  EXPECT_EQ(side.out->fault().code, FaultCode::kSequence);
  EXPECT_EQ(side.out->fault().detail, wrong);
  EXPECT_FALSE(side.out->WaitSend(kSpin));
}

// The parent's part in one round in which its peer is killed: set-up, monitor, frames until the
// link fails. Returns how it ended: by an Error of the set-up, or by the monitor. `up` is set when
// the set-up has ended, either way.
enum class Ended { kSettingUp, kRunning };
Ended RunUntilAbandoned(const std::string& name, const Shape& shape, pid_t child,
                        const WaitPolicy& policy, int accept_ms, std::atomic<bool>& up) {
  ControlListener listener(name);  // the same name every time: the last round must not block it
  std::optional<Side> side;
  try {
    side.emplace(listener.Accept(accept_ms), shape, true, "weight0");
  } catch (const Error&) {
    up = true;
    return Ended::kSettingUp;
  }
  std::pair<pid_t, PeerEnd> reported = {0, PeerEnd::kGoodbye};
  {
    PeerMonitor monitor(side->channel, [&](pid_t pid, PeerEnd how) {
      reported = {pid, how};
      side->out->Fail(FaultCode::kLinkDown);
      side->in->Fail(FaultCode::kLinkDown);
    });
    up = true;
    while (side->out->WaitSend(policy)) {
      const sync::SendSlot slot = side->out->BeginSend();
      if (!slot) break;  // the monitor failed the link after the wait had seen a free slot
      std::memset(slot.bytes, 1, shape.link.frame_bytes);
      side->out->EndSend();
      if (!side->in->WaitReceive(policy)) break;
      side->in->EndReceive();
    }
    while (!monitor.peer_ended()) std::this_thread::yield();
  }
  EXPECT_EQ(reported, std::pair(child, PeerEnd::kGone));
  const sync::Fault fault = side->out->fault() ? side->out->fault() : side->in->fault();
  EXPECT_EQ(fault.code, FaultCode::kLinkDown);
  return Ended::kRunning;
}

TEST(TwoProcesses, KilledAtRandomMoments) {
  LARDER_SKIP_UNDER_TSAN();
  const Shape shape = {{300, 2}};
  const std::string name = NewName();
  std::mt19937 random(20240607);
  int running = 0;
  for (int round = 0; round < 50; ++round) {
    const WaitPolicy policy = round % 10 == 9 ? kSpin : kSleepAtOnce;
    const pid_t child = Fork([&] {
      Side side = ConnectSide(name, shape);
      PeerMonitor monitor(side.channel);
      while (side.in->WaitReceive(policy)) {
        side.in->EndReceive();
        if (!side.out->WaitSend(policy)) break;
        side.out->EndSend();
      }
      return 0;
    });
    // every fifth dies at about the time of the connection, the others while frames cross
    const bool early = round % 5 == 0;
    const auto delay = std::chrono::microseconds(random() % (early ? 3000 : 20000));
    std::atomic<bool> up{false};
    int64_t killed_ns = 0;
    std::thread killer([&] {
      while (!early && !up) std::this_thread::yield();
      std::this_thread::sleep_for(delay);
      killed_ns = NowNs();
      kill(child, SIGKILL);
    });
    const Ended ended = RunUntilAbandoned(name, shape, child, policy, early ? 500 : kLongMs, up);
    const int64_t ended_ns = NowNs();
    killer.join();
    EXPECT_TRUE(Killed(WaitFor(child))) << "round " << round;
    // the promised bound, a thousand times what it usually takes
    EXPECT_LT(ended_ns - killed_ns, 2'000'000'000) << "round " << round;
    running += ended == Ended::kRunning;
  }
  EXPECT_GE(running, 40);
}

TEST(TwoProcesses, AKilledListenersNameIsFreeAtOnce) {
  LARDER_SKIP_UNDER_TSAN();
  const Shape shape = {{64, 2}};
  const std::string name = NewName();
  for (int round = 0; round < 10; ++round) {
    const pid_t child = Fork([&] {
      ControlListener listener(name);
      Side side(listener.Accept(kLongMs), shape, true, "weight0");
      pause();
      return 0;
    });
    Side side = ConnectSide(name, shape);
    EXPECT_EQ(side.channel.peer_pid(), child);
    try {
      ControlListener taken(name);
      ADD_FAILURE() << "the child has this name";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(fmt::format("in use by pid {}", child)),
                std::string::npos)
          << error.what();
    }
    kill(child, SIGKILL);
    EXPECT_TRUE(Killed(WaitFor(child)));
    ControlListener listener(name);  // throws if the name is still taken
  }
}

TEST(TwoProcesses, ASecondClientIsRefusedAndTheFirstGoesOn) {
  LARDER_SKIP_UNDER_TSAN();
  const Shape shape = {{64, 2}};
  const std::string name = NewName();
  const pid_t first = Fork([&] {
    Side side = ConnectSide(name, shape);
    return Echo(side, 0, 3, kSleepAtOnce);
  });
  int go[2];
  ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
  const pid_t second = Fork([&] {
    close(go[1]);
    char byte;
    if (read(go[0], &byte, 1) != 1) return 3;
    try {
      ConnectSide(name, shape);
    } catch (const Error& error) {
      const std::string why = error.what();
      return why.find(fmt::format("already has its 1 peer (pid {})", first)) == std::string::npos
                 ? 2
                 : 0;
    }
    return 1;
  });
  ControlListener listener(name);
  Side side(listener.Accept(kLongMs), shape, true, "weight0");
  ASSERT_EQ(write(go[1], "g", 1), 1);
  EXPECT_TRUE(Exited(WaitFor(second), 0));
  for (uint32_t n = 0; n < 3; ++n) {
    ASSERT_TRUE(side.out->WaitSend(kSleepAtOnce));
    FillFrame(side.out->BeginSend().bytes, 64, n);
    side.out->EndSend();
    ASSERT_TRUE(side.in->WaitReceive(kSleepAtOnce));
    side.in->EndReceive();
  }
  EXPECT_TRUE(Exited(WaitFor(first), 0));
  close(go[0]);
  close(go[1]);
}

}  // namespace
}  // namespace larder::rdma::shm
