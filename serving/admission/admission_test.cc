#include "serving/admission/admission.h"

#include <gtest/gtest.h>

#include <vector>

namespace larder::serving::inline admission {
namespace {

AdmissionLimits Small() {
  AdmissionLimits limits;
  limits.connections = {.peer = 2};
  limits.requests = {.connection = 2, .peer = 3, .all = 4};
  limits.bytes = {.connection = 1000, .peer = 1500, .all = 2000};
  limits.free_bytes = 100;
  return limits;
}

TEST(PeerOf, IsAnAddressAndOfIpv6ItsNetwork) {
  EXPECT_EQ(PeerOf("10.0.0.1").name, "10.0.0.1");
  EXPECT_EQ(PeerOf("::ffff:10.0.0.1").name, "10.0.0.1");
  EXPECT_EQ(PeerOf("2001:db8:1:2:3:4:5:6").name, "2001:db8:1:2::/64");
  EXPECT_EQ(PeerOf("2001:db8:1:2::9").name, PeerOf("2001:db8:1:2:ffff::1").name);
  EXPECT_NE(PeerOf("2001:db8:1:2::9").name, PeerOf("2001:db8:1:3::9").name);
  EXPECT_EQ(PeerOf("fe80::1%eth0").name, "fe80::/64");
  EXPECT_EQ(PeerOf("a client that is gone").name, "a client that is gone");
  for (const char* loopback : {"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(PeerOf(loopback).loopback) << loopback;
  for (const char* other : {"10.0.0.1", "128.0.0.1", "2001:db8::1", "::2", "x"})
    EXPECT_FALSE(PeerOf(other).loopback) << other;
}

TEST(Admission, EachLimitIsNamedAndCounted) {
  Admission admission(Small());
  const auto a = admission.Open(PeerOf("10.0.0.1")), b = admission.Open(PeerOf("10.0.0.1"));
  const auto c = admission.Open(PeerOf("10.0.0.2"));
  std::vector<Admission::Hold> held;
  const auto take = [&](const Admission::Client& client) {
    const auto why = client.WhyNot(Resource::kRequests, 1);
    if (!why) held.push_back(client.Take(Resource::kRequests, 1));
    return why;
  };
  EXPECT_EQ(take(a), std::nullopt);
  EXPECT_EQ(take(a), std::nullopt);
  EXPECT_EQ(take(a), Scope::kConnection);
  EXPECT_EQ(take(b), std::nullopt);
  EXPECT_EQ(take(b), Scope::kPeer);
  EXPECT_EQ(take(c), std::nullopt);
  EXPECT_EQ(take(c), Scope::kAll);
  EXPECT_EQ(take(c), Scope::kAll);
  EXPECT_EQ(admission.refused(Resource::kRequests, Scope::kConnection), 1u);
  EXPECT_EQ(admission.refused(Resource::kRequests, Scope::kPeer), 1u);
  EXPECT_EQ(admission.refused(Resource::kRequests, Scope::kAll), 2u);
  EXPECT_EQ(admission.used(Resource::kRequests), 4u);
  held.clear();
  EXPECT_EQ(admission.used(Resource::kRequests), 0u);
  EXPECT_EQ(take(c), std::nullopt);
}

TEST(Admission, WhatIsLittleIsNeverTooMuch) {
  Admission admission(Small());
  const auto large = admission.Open(PeerOf("10.0.0.1")), more = admission.Open(PeerOf("10.0.0.3"));
  const auto small = admission.Open(PeerOf("10.0.0.2"));
  const auto a = large.Take(Resource::kBytes, 1000), b = more.Take(Resource::kBytes, 1000);
  EXPECT_EQ(large.WhyNot(Resource::kBytes, 1), Scope::kConnection);
  EXPECT_EQ(small.WhyNot(Resource::kBytes, 100), std::nullopt);
  EXPECT_EQ(small.WhyNot(Resource::kBytes, 101), Scope::kAll);
}

TEST(Admission, AHoldIsGivenBackOnceWhereverItHasMoved) {
  Admission admission(Small());
  {
    auto client = admission.Open(PeerOf("10.0.0.1"));
    Admission::Hold first = client.Take(Resource::kBytes, 300);
    Admission::Hold second = std::move(first);
    EXPECT_EQ(client.used(Resource::kBytes), 300u);
    second.Resize(500);
    EXPECT_EQ(client.used(Resource::kBytes), 500u);
    second = client.Take(Resource::kBytes, 7);
    EXPECT_EQ(client.used(Resource::kBytes), 7u);
    client = {};  // the hold outlives the connection
    EXPECT_EQ(admission.used(Resource::kBytes), 7u);
    EXPECT_EQ(admission.peers(), 1u);
  }
  EXPECT_EQ(admission.used(Resource::kBytes), 0u);
  EXPECT_EQ(admission.peers(), 0u);
}

TEST(Admission, LoopbackIsNoPeerUnlessItIsSaid) {
  for (const bool limited : {false, true}) {
    AdmissionLimits limits = Small();
    limits.loopback_is_a_peer = limited;
    Admission admission(limits);
    const auto client = admission.Open(PeerOf("127.0.0.1"));
    const auto held = client.Take(Resource::kConnections, 2);
    EXPECT_EQ(client.WhyNot(Resource::kConnections, 1),
              limited ? std::optional(Scope::kPeer) : std::nullopt);
  }
}

TEST(AdmissionDeathTest, WhatIsNeverGivenBackIsABug) {
  EXPECT_DEATH(
      {
        Admission::Hold left;
        Admission admission(Small());
        left = admission.Open(PeerOf("10.0.0.1")).Take(Resource::kBytes, 5);
      },
      "5 bytes were never given back");
}

}  // namespace
}  // namespace larder::serving::admission
