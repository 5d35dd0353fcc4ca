// An order ends when all parts of its chunk say so, in a frame that it was in or a later one.
#include "pipeline/kv/kv_order_book.h"

#include <gtest/gtest.h>

#include <vector>

namespace larder::pipeline::inline kv {
namespace {

using Kind = KvOrder::Kind;
using State = KvOrderBook::State;
constexpr uint64_t kAll = ~uint64_t{0};

class KvOrderBookTest : public testing::Test {
 protected:
  // A frame's step, and what it takes along.
  std::vector<KvOrder> Send(uint64_t step) {
    std::vector<KvOrder> orders(kKvOrderPlaces);
    orders.resize(book_.Send(step, orders.data()));
    return orders;
  }
  // What two stages say of a socket's chunks.
  void See(uint64_t step, int socket, KvReport one, KvReport other) {
    const KvReport both[] = {one, other};
    book_.See(step, AttentionId(socket), both);
  }
  KvOrderBook book_{{10, 20}};
};

TEST_F(KvOrderBookTest, OrdersAreSentOnceAndEndWhenAllPartsHave) {
  EXPECT_FALSE(book_.waits());
  const auto one = book_.Add(Kind::kStore, {1, 2}, 3);
  const auto other = book_.Add(Kind::kLoad, {3, 4}, 15);
  ASSERT_TRUE(one && other);
  EXPECT_TRUE(book_.waits());
  EXPECT_EQ(book_.taken(), 2u);
  const auto sent = Send(7);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0], (KvOrder{{1, 2}, Kind::kStore, *one, 3}));
  EXPECT_FALSE(book_.waits());
  EXPECT_TRUE(Send(8).empty());

  See(7, 0, {.done = 0}, {.done = kAll});
  EXPECT_EQ(book_.state(*one), State::kSent) << "one stage has not ended";
  See(8, 1, {.done = kAll}, {.done = kAll});
  EXPECT_EQ(book_.state(*one), State::kSent) << "that is another socket's report";
  EXPECT_EQ(book_.state(*other), State::kDone);
  See(8, 0, {.done = kAll}, {.done = kAll});
  EXPECT_EQ(book_.state(*one), State::kDone);
  book_.Free(*one);
  book_.Free(*other);
  EXPECT_EQ(book_.taken(), 0u);
}

TEST_F(KvOrderBookTest, AFrameThatWentBeforeSaysNothing) {
  const auto place = book_.Add(Kind::kStore, {1, 2}, 3);
  Send(7);
  See(6, 0, {.done = kAll}, {.done = kAll});
  EXPECT_EQ(book_.state(*place), State::kSent) << "the bits are an earlier order's";
  See(7, 0, {.done = kAll}, {.done = kAll});
  EXPECT_EQ(book_.state(*place), State::kDone);
}

TEST_F(KvOrderBookTest, FailsIfOnePartDoesAndWaitsForTheOthers) {
  const auto place = book_.Add(Kind::kLoad, {1, 2}, 3);
  Send(1);
  See(1, 0, {.done = 0}, {.done = kAll, .failed = kAll});
  EXPECT_EQ(book_.state(*place), State::kSent) << "the other still writes to the chunk";
  See(2, 0, {.done = kAll}, {.done = kAll, .failed = kAll});
  EXPECT_EQ(book_.state(*place), State::kFailed);
}

TEST_F(KvOrderBookTest, HasAPlaceForSixtyFourAndCountsFiles) {
  for (size_t i = 0; i < kKvOrderPlaces; ++i) ASSERT_TRUE(book_.Add(Kind::kStore, {i, i}, 0));
  EXPECT_FALSE(book_.Add(Kind::kStore, {0, 0}, 0));
  EXPECT_EQ(Send(0).size(), kKvOrderPlaces);
  See(0, 0, {.files = 1, .bytes = 10}, {.files = 2, .bytes = 20});
  See(0, 1, {.files = 3, .bytes = 30}, {.files = 4, .bytes = 40});
  EXPECT_EQ(book_.files(), 10u);
  EXPECT_EQ(book_.bytes(), 100u);
  book_.Clear();
  EXPECT_EQ(book_.taken(), 0u);
}

}  // namespace
}  // namespace larder::pipeline::kv
