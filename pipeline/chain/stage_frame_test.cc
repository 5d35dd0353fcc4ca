#include "pipeline/chain/stage_frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "pipeline/chain/stage_frame_testing.h"

namespace larder::pipeline::inline chain {
namespace {

TEST(StageFrameTest, AValidOneIsAccepted) {
  TestFrame frame(TestFrameShape());
  EXPECT_EQ(frame.Check(), nullptr);
  frame.bytes.resize(frame.shape.bytes(6, 2, 2));
  EXPECT_EQ(frame.Check(), nullptr) << "only its own rows need to have come";
}

TEST(StageFrameTest, FromTheLastStageResidualsAreThoseOfLogitRows) {
  TestFrame frame(TestFrameShape());
  EXPECT_STREQ(frame.Check(true), "residuals of rows other than those it names");
  frame.view().header().residual_rows = 2;
  EXPECT_STREQ(frame.Check(true), "more changes to the KV table than there is room for")
      << "stages use them up";
  frame.view().header().kv_updates = 0;
  EXPECT_STREQ(frame.Check(true), "more KV orders than there is room for") << "these, too";
  frame.view().header().kv_orders = 0;
  EXPECT_EQ(frame.Check(true), nullptr);
  EXPECT_STREQ(frame.Check(false), "residuals of rows other than those it names");
}

TEST(StageFrameTest, OneWithOrdersAloneHasNoRows) {
  const auto check = [](auto&& spoil, bool from_last = false) {
    TestFrame frame(TestFrameShape());
    frame.MakeOrders();
    spoil(frame.view().header());
    const char* wrong = frame.Check(from_last);
    return std::string(wrong != nullptr ? wrong : "");
  };
  EXPECT_EQ(check([](StageFrameHeader&) {}), "");
  EXPECT_EQ(check([](StageFrameHeader& h) { h.kv_orders = 0; }), "");
  EXPECT_EQ(check([](StageFrameHeader& h) { h.kv_orders = 0; }, true), "");
  EXPECT_NE(check([](StageFrameHeader&) {}, true), "");
  EXPECT_EQ(check([](StageFrameHeader& h) { h.rows = 1; }), "an impossible number of rows");
  EXPECT_NE(check([](StageFrameHeader& h) { h.logit_rows = 1; }), "");
  EXPECT_NE(check([](StageFrameHeader& h) { h.residual_rows = 1; }), "");
  EXPECT_NE(check([](StageFrameHeader& h) { h.kv_updates = 1; }), "");
  EXPECT_NE(check([](StageFrameHeader& h) { h.first_half = 1; }), "");
  TestFrame frame(TestFrameShape());
  frame.MakeOrders();
  FrameCopy copy(frame.shape);
  ASSERT_EQ(copy.Take(frame.bytes, 7, false), nullptr);
  std::ranges::fill(frame.bytes, std::byte{0xff});
  ASSERT_EQ(copy.kv_orders().size(), 2u);
  EXPECT_EQ(copy.kv_orders()[1], (KvOrder{{3, 4}, KvOrder::Kind::kLoad, 63, 0}));
}

TEST(StageFrameTest, EachWrongFieldIsRefusedByName) {
  using Spoil = std::function<void(TestFrame&)>;
  const std::vector<std::pair<const char*, Spoil>> table = {
      {"a size that no frame can have", [](TestFrame& f) { f.bytes.resize(10); }},
      {"a size that no frame can have", [](TestFrame& f) { f.bytes.resize(f.bytes.size() + 1); }},
      {"fewer bytes than its rows need",
       [](TestFrame& f) { f.bytes.resize(f.shape.bytes(6, 2, 2) - 1); }},
      {"not a stage's frame (wrong magic number)",
       [](TestFrame& f) { f.view().header().magic ^= 1; }},
      {"another frame version", [](TestFrame& f) { f.view().header().version = 1; }},
      {"another plan's frame", [](TestFrame& f) { f.view().header().plan_hash ^= 1; }},
      {"an unknown kind",
       [](TestFrame& f) { f.view().header().kind = static_cast<StageFrameHeader::Kind>(4); }},
      {"an impossible number of rows",
       [](TestFrame& f) { f.view().header().kind = StageFrameHeader::Kind::kOrders; }},
      {"not the step that was expected", [](TestFrame& f) { f.view().header().step = 8; }},
      {"not the step that was expected", [](TestFrame& f) { f.view().header().micro_batch = 2; }},
      {"an impossible number of rows", [](TestFrame& f) { f.view().header().rows = 0; }},
      {"an impossible number of rows", [](TestFrame& f) { f.view().header().rows = 9; }},
      {"an impossible number of rows", [](TestFrame& f) { f.view().header().rows = ~0u; }},
      {"a first half that leaves nothing for the second",
       [](TestFrame& f) { f.view().header().first_half = 6; }},
      {"more rows with logits than rows", [](TestFrame& f) { f.view().header().logit_rows = 7; }},
      {"more rows with logits than there is room for",
       [](TestFrame& f) {
         f.view().header().logit_rows = 5;  // six rows, but room for the logits of four
         for (uint32_t i = 0; i < 5; ++i) f.view().logit_row()[i] = i;
       }},
      {"residuals of rows other than those it names",
       [](TestFrame& f) { f.view().header().residual_rows = 5; }},
      {"rows with logits out of order", [](TestFrame& f) { f.view().logit_row()[0] = 5; }},
      {"rows with logits out of order", [](TestFrame& f) { f.view().logit_row()[1] = 6; }},
      {"counters of experts that do not exist",
       [](TestFrame& f) { f.view().expert_report()[0].first = 1; }},
      {"counters of experts that do not exist",
       [](TestFrame& f) { f.view().expert_report()[1].first = 40; }},
      {"a slot that does not exist", [](TestFrame& f) { f.view().slot()[5] = SlotId(5); }},
      {"a slot that does not exist", [](TestFrame& f) { f.view().slot()[0] = SlotId(-1); }},
      {"a position beyond the context", [](TestFrame& f) { f.view().position()[2] = 600; }},
      {"a gap in the positions of a slot", [](TestFrame& f) { f.view().position()[1] = 12; }},
      {"more changes to the KV table than there is room for",
       [](TestFrame& f) { f.view().header().kv_updates = 527; }},
      {"KV for a slot that does not exist",
       [](TestFrame& f) { f.view().kv_update(6)[1].slot = SlotId(5); }},
      {"KV for a slot that does not exist",
       [](TestFrame& f) { f.view().kv_update(6)[1].slot = SlotId(-2); }},
      {"KV beyond the context", [](TestFrame& f) { f.view().kv_update(6)[0].index = 3; }},
      {"a KV chunk that does not exist", [](TestFrame& f) { f.view().kv_update(6)[1].chunk = 15; }},
      {"a KV chunk that does not exist",
       [](TestFrame& f) { f.view().kv_update(6)[0].chunk = 6; }},  // another's
      {"a KV chunk that does not exist",
       [](TestFrame& f) { f.view().kv_update(6)[1].copied_from = 5; }},
      {"more KV orders than there is room for",
       [](TestFrame& f) { f.view().header().kv_orders = 65; }},
      {"a KV order of an unknown kind",
       [](TestFrame& f) { f.view().kv_order(6, 2)[0].kind = static_cast<KvOrder::Kind>(0); }},
      {"a KV order of a place that does not exist",
       [](TestFrame& f) { f.view().kv_order(6, 2)[1].place = 64; }},
      {"a KV order for a chunk that does not exist",
       [](TestFrame& f) { f.view().kv_order(6, 2)[0].chunk = 15; }},
      {"rows out of the attention sockets' order",
       [](TestFrame& f) { f.view().slot()[3] = SlotId(0); }},
  };
  for (const auto& [expected, spoil] : table) {
    TestFrame frame(TestFrameShape());
    spoil(frame);
    EXPECT_STREQ(frame.Check(), expected);
  }
}

// The other end of a link may still write to a frame that it has sent.
TEST(StageFrameTest, WhatWasTakenDoesNotChange) {
  TestFrame frame(TestFrameShape());
  frame.view().report()[1].here_ns = 77;
  frame.view().expert_report()[1] = {.first = 39, .numbers = {5}};
  FrameCopy copy(frame.shape);
  ASSERT_EQ(copy.Take(frame.bytes, 7, false), nullptr);
  std::fill(frame.bytes.begin(), frame.bytes.end(), std::byte{0xff});
  EXPECT_EQ(copy.header().rows, 6u);
  EXPECT_EQ(copy.header().first_half, 4u);
  EXPECT_EQ(copy.header().logit_rows, 2u);
  EXPECT_EQ(copy.slot()[5], SlotId(2));
  EXPECT_EQ(copy.position()[2], 99u);
  EXPECT_EQ(copy.logit_row()[1], 5u);
  EXPECT_EQ(copy.report()[1].here_ns, 77u);
  EXPECT_EQ(copy.expert_report()[1].first, 39u);
  EXPECT_EQ(copy.expert_report()[1].numbers[0], 5u);
  EXPECT_EQ(copy.kv_update()[1], (model::KvUpdate{SlotId(3), 0, 6, 14, 9}));
  EXPECT_EQ(static_cast<const void*>(copy.residual()), frame.view().residual())
      << "read where it came";
}

TEST(StageFrameTest, WithoutAttentionSocketsAnyOrderWillDo) {
  StageFrameShape shape = TestFrameShape();
  shape.rows.slot_ends.clear();
  shape.rows.chunk_ends = {15};
  TestFrame frame(shape);
  frame.view().slot()[3] = SlotId(0);
  EXPECT_EQ(frame.Check(), nullptr);
}

TEST(StageFrameTest, FieldsDoNotOverlap) {
  const StageFrameShape shape = TestFrameShape();
  EXPECT_EQ(shape.slot_offset(), sizeof(StageFrameHeader));
  EXPECT_GE(shape.position_offset(), shape.slot_offset() + shape.max_rows() * 4);
  EXPECT_GE(shape.logit_row_offset(), shape.position_offset() + shape.max_rows() * 4);
  EXPECT_GE(shape.residual_offset(), shape.logit_row_offset() + shape.max_rows() * 4);
  EXPECT_EQ(shape.residual_offset() % kCacheLineBytes, 0u);
  EXPECT_EQ(shape.report_offset() % alignof(SocketReport), 0u);
  EXPECT_LE(shape.logit_row_offset() + shape.max_rows() * 4, shape.report_offset());
  EXPECT_EQ(shape.reports(), 2 * (1 + 2u));  // two stages, each with two attention sockets
  EXPECT_EQ(shape.expert_report_offset(),
            shape.report_offset() + shape.reports() * sizeof(SocketReport));
  EXPECT_EQ(shape.expert_report_offset() % alignof(ExpertReport), 0u);
  EXPECT_LE(shape.expert_report_offset() + 2 * sizeof(ExpertReport), shape.residual_offset());
  EXPECT_EQ(shape.kv_update_offset(8), shape.residual_offset() + shape.max_rows() * (3 + 2) * 4);
  EXPECT_EQ(shape.bytes_from_last(4), shape.residual_offset() + 4 * 3 * 4);
  EXPECT_GE(shape.kv_order_offset(8, 526),
            shape.kv_update_offset(8) + 526 * sizeof(model::KvUpdate));
  EXPECT_EQ(shape.kv_order_offset(3, 1) % alignof(KvOrder), 0u);
  EXPECT_EQ(shape.bytes(), shape.kv_order_offset(8, 526) + 64 * sizeof(KvOrder));
}

// Chunks of two classes on each of two sockets: [0, 3) and [3, 6), [6, 10) and [10, 15).
TEST(StageFrameTest, WhatIsCopiedIsOfTheSameClass) {
  StageFrameShape shape = TestFrameShape();
  shape.rows.chunk_ends = {3, 6, 10, 15};
  TestFrame frame(shape);
  EXPECT_STREQ(frame.Check(), "a KV chunk that does not exist") << "14 is copied to 6";
  frame.view().kv_update(6)[1].copied_from = 9;
  EXPECT_EQ(frame.Check(), nullptr);
  frame.view().kv_update(6)[1] = {SlotId(3), 0, 14, 10, 9};
  EXPECT_EQ(frame.Check(), nullptr);
  frame.view().kv_update(6)[1] = {SlotId(3), 0, 10, 9, 9};
  EXPECT_STREQ(frame.Check(), "a KV chunk that does not exist");
  frame.view().kv_update(6)[1] = {SlotId(3), 0, 5, 5, 9};
  EXPECT_STREQ(frame.Check(), "a KV chunk that does not exist") << "the other socket's";
  frame.view().kv_update(6)[1] = {SlotId(3), 0, 15, 14, 9};
  EXPECT_STREQ(frame.Check(), "a KV chunk that does not exist");
}

}  // namespace
}  // namespace larder::pipeline::chain
