// Models of equal tensors that compute otherwise share nothing that is stored: no KV file, no saved
// slot, no part of a split model, no chain.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error_testing.h"
#include "base/temporary_folder_testing.h"
#include "model/config/split.h"
#include "model/reference/tiny_model_testing.h"
#include "pipeline/kv_store/kv_files.h"
#include "pipeline/kv_store/slot_file.h"
#include "pipeline/plan/identity.h"
#include "pipeline/plan/plan.h"
#include "topology/machines_testing.h"
#include "topology/scattered_bytes.h"

namespace larder::pipeline::inline engine {
namespace {

using model::GgufFile;

constexpr size_t kPositions = 16, kBytes = 64;

model::TinyModel ModelWith(float rope_base) {
  return model::TinyModel({"llama", 64, 96, 4, 2, 16, 16, rope_base, true, 37, 2});
}

Plan PlanFor(const GgufFile& file) {
  PlanOptions options;
  options.threads = 2;
  options.capacity.context = 256;
  options.fingerprint = model::Fingerprint(file);
  return MakePlan(model::ReadModelConfig(file),
                  topology::ByDescription("intel-cascadelake-2xXeon6230-optane-memorysidecache"),
                  options);
}

class ModelIdentity : public testing::Test {
 protected:
  KvFilesOptions Files(uint64_t identity) const {
    return {.folder = folder_ / "kv",
            .most_bytes = 1 << 20,
            .model = identity,
            .chunk_positions = kPositions,
            .chunk_bytes = {kBytes}};
  }
  static SlotFileOptions Slots(uint64_t identity) {
    return {.model = identity,
            .context = 256,
            .vocab = 37,
            .chunk_positions = kPositions,
            .chunk_bytes = {kBytes}};
  }

  const model::TinyModel base_ = ModelWith(1e4f), again_ = ModelWith(1e4f),
                         other_ = ModelWith(2e4f);
  const std::shared_ptr<const GgufFile> model_ = GgufFile::Open(base_.path()),
                                        same_ = GgufFile::Open(again_.path()),
                                        turned_ = GgufFile::Open(other_.path());
  const std::vector<int32_t> tokens_ = std::vector<int32_t>(kPositions, 3);
  const TemporaryFolder folder_;
};

TEST_F(ModelIdentity, IsOfTheComputation) {
  ASSERT_EQ(model::Fingerprint(*model_), model::Fingerprint(*turned_)) << "equal tensors";
  const Plan plan = PlanFor(*model_), same = PlanFor(*same_), turned = PlanFor(*turned_);
  EXPECT_EQ(plan.identity(), same.identity());
  EXPECT_EQ(plan.hash(), same.hash());
  EXPECT_NE(plan.identity(), turned.identity());
  EXPECT_NE(plan.hash(), turned.hash());
  const StagePlan &of_plan = plan.stages[0].plan, &of_turned = turned.stages[0].plan;
  EXPECT_EQ(of_plan.identity(), same.stages[0].plan.identity());
  EXPECT_NE(of_plan.identity(), of_turned.identity());
  EXPECT_NE(of_plan.ExchangeHash(), of_turned.ExchangeHash());
}

TEST_F(ModelIdentity, KvFilesAreOfOneComputation) {
  const uint64_t identity = PlanFor(*model_).identity();
  std::vector<uint8_t> chunk(kBytes, 1);
  KvFiles(Files(identity)).Write(tokens_, 0, 0, topology::ScatteredBytes(chunk));
  const auto found = [&](uint64_t by) { return KvFiles(Files(by)).Find(tokens_, 0); };
  EXPECT_EQ(found(PlanFor(*same_).identity()), 1u);
  EXPECT_EQ(found(PlanFor(*turned_).identity()), 0u);
  EXPECT_EQ(found(IdentityOf(model::Fingerprint(*model_), model::ReadModelConfig(*model_),
                             kernels::kArithmeticVersion + 1)),
            0u);
  EXPECT_EQ(found(identity), 1u) << "nor are they harmed";
}

TEST_F(ModelIdentity, ASavedSlotIsOfOneComputation) {
  const std::string path = folder_ / "slot";
  WriteSlotFile(path, Slots(PlanFor(*model_).identity()),
                {.tokens = tokens_, .pieces = {{.bytes = std::vector<uint8_t>(kBytes, 1)}}});
  EXPECT_EQ(ReadSlotFile(path, Slots(PlanFor(*same_).identity())).tokens, tokens_);
  for (const uint64_t other :
       {PlanFor(*turned_).identity(),
        IdentityOf(model::Fingerprint(*model_), model::ReadModelConfig(*model_),
                   kernels::kArithmeticVersion + 1)}) {
    EXPECT_EQ(ErrorOf([&] { ReadSlotFile(path, Slots(other)); }),
              path +
                  ": it is of another model, of other settings of it (such as rope.freq_base), or "
                  "of another arithmetic: save the slot again");
  }
}

// The parts of one do not make a chain with the parts of the other.
TEST_F(ModelIdentity, PartsAreOfOneComputation) {
  const auto serving_part = [&](const GgufFile& whole, const std::string& name) {
    model::WriteSplit(whole, {{folder_ / (name + "0"), 0, 1}, {folder_ / (name + "1"), 1, 1}},
                      folder_ / name);
    return PlanFor(*GgufFile::Open(folder_ / name));
  };
  const Plan plan = PlanFor(*model_), part = serving_part(*model_, "a"),
             turned = serving_part(*turned_, "b");
  EXPECT_EQ(part.identity(), plan.identity());
  EXPECT_EQ(part.hash(), plan.hash());
  EXPECT_EQ(turned.fingerprint, plan.fingerprint);
  EXPECT_NE(turned.hash(), plan.hash());
  EXPECT_EQ(PlanFor(*GgufFile::Open(folder_ / "a0")).hash(), plan.hash());
  EXPECT_NE(PlanFor(*GgufFile::Open(folder_ / "b0")).hash(), plan.hash());
}

}  // namespace
}  // namespace larder::pipeline::engine
