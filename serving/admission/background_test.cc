#include "serving/admission/background.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace larder::serving::inline admission {
namespace {

// Keeps the thread busy until the test lets it go on.
struct Busy {
  explicit Busy(Background& background) {
    ticket = background.Post("busy", [this, gone = let_go.get_future().share()] {
      begun.set_value();
      gone.wait();  // after that this object must not be used: it may be destroyed
    });
    begun.get_future().wait();
  }
  std::promise<void> begun, let_go;
  JobTicket ticket;
};

TEST(Background, PeersTakeTurnsAndAPeersJobsKeepTheirOrder) {
  std::vector<std::string> done;
  std::vector<JobTicket> tickets;
  Background background;
  Busy busy(background);
  const auto post = [&](const std::string& peer, const std::string& name) {
    tickets.push_back(background.Post(peer, [&done, name] { done.push_back(name); }));
  };
  for (const char* name : {"a1", "a2", "a3", "a4"}) post("a", name);
  post("b", "b1");
  post("c", "c1");
  post("b", "b2");
  std::promise<void> end;
  tickets.push_back(background.Post("a", [&] { end.set_value(); }));
  busy.let_go.set_value();
  end.get_future().wait();
  EXPECT_EQ(done, (std::vector<std::string>{"a1", "b1", "c1", "a2", "b2", "a3", "a4"}));
}

TEST(Background, WhatNobodyWantsIsFreedBeforeItsTurn) {
  Background background;
  Busy busy(background);
  auto data = std::make_shared<std::string>(1000, 'x');
  bool ran = false;
  JobTicket first = background.Post("a", [data, &ran] { ran = true; });
  JobTicket second = background.Post("a", [data] {});
  EXPECT_EQ(background.waiting(), 2u);
  first = nullptr;
  EXPECT_EQ(background.waiting(), 1u);
  EXPECT_EQ(data.use_count(), 2) << "the second job's and ours";
  std::promise<void> end;
  JobTicket last = background.Post("a", [&] { end.set_value(); });
  busy.let_go.set_value();
  busy.ticket = nullptr;  // it has begun: it ends where it counts its work, here nowhere
  end.get_future().wait();
  EXPECT_FALSE(ran);
}

TEST(Background, AnExceptionEndsItsJobOnly) {
  std::string said;
  Background background([&](const char* what) { said = what; });
  const auto bad = background.Post("a", [] { throw std::out_of_range("planted"); });
  std::promise<void> end;
  const auto good = background.Post("a", [&] { end.set_value(); });
  end.get_future().wait();
  EXPECT_EQ(said, "planted");
}

TEST(Background, AJobThatNobodyWantsEndsAtItsNextStep) {
  std::string said;
  Background background([&](const char* what) { said = what; }, {.limits = WorkLimits{}});
  std::promise<void> begun, ended;
  struct AtEnd {
    std::promise<void>& ended;
    ~AtEnd() { ended.set_value(); }
  };
  JobTicket ticket = background.Post("a", [&] {
    const AtEnd end{ended};
    begun.set_value();
    for (;;) Work::Current()->Spend(0);
  });
  begun.get_future().wait();
  ticket = nullptr;
  ended.get_future().wait();
  std::promise<void> next;
  const JobTicket other = background.Post("a", [&] { next.set_value(); });
  next.get_future().wait();
  EXPECT_EQ(said, "");
}

TEST(Background, AShortJobDoesNotWaitForALongOne) {
  Background background({}, {.threads = 2});
  Busy busy(background);
  std::promise<void> end;
  const JobTicket other = background.Post("a", [&] { end.set_value(); });
  end.get_future().wait();  // while the first one runs
  busy.let_go.set_value();
}

TEST(Background, TicketsMayOutliveIt) {
  JobTicket ticket;
  auto data = std::make_shared<int>(1);
  {
    Background background;
    Busy busy(background);
    ticket = background.Post("a", [data] {});
    busy.let_go.set_value();
  }
  EXPECT_EQ(data.use_count(), 1);
  ticket = nullptr;
}

}  // namespace
}  // namespace larder::serving::admission
