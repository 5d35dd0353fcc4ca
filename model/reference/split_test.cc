#include "model/config/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/error_testing.h"
#include "base/temporary_folder_testing.h"
#include "model/config/description.h"
#include "model/gguf/gguf_testing.h"
#include "model/reference/tiny_model_testing.h"

namespace larder::model::inline reference {
namespace {

using testing::TempFile;

TinyShape Shape(const char* architecture, bool tied) {
  return {architecture, 64, 96, 4, 2, 16, 16, 1e4f, tied, 37, 5};
}

// The parts of a model of five layers: stages of 2 and 3 layers, and serving.
struct Parts {
  explicit Parts(const GgufFile& whole) {
    WriteSplit(whole, {{paths[0].path(), 0, 2}, {paths[1].path(), 2, 3}}, paths[2].path());
    for (const TempFile& path : paths) files.push_back(GgufFile::Open(path.path()));
  }
  TempFile paths[3];
  std::vector<std::shared_ptr<const GgufFile>> files;
};

std::string BytesOf(const GgufFile& file, const TensorInfo& tensor) {
  std::string bytes(tensor.size_bytes, '\0');
  file.ReadRows(tensor, 0, tensor.rows, bytes.data());
  return bytes;
}

TEST(Split, PartsHaveEveryTensorOnceBitForBit) {
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kQ8_0}) {
    const TinyModel model(Shape("llama", false), type);
    const auto whole = GgufFile::Open(model.path());
    const Parts parts(*whole);
    std::multiset<std::string> names;
    for (size_t p = 0; p < 3; ++p) {
      for (const TensorInfo& tensor : parts.files[p]->tensors()) {
        names.insert(tensor.name);
        const TensorInfo& source = whole->Tensor(tensor.name);
        EXPECT_EQ(tensor.gguf_type, source.gguf_type);
        EXPECT_EQ(tensor.rows, source.rows);
        EXPECT_EQ(BytesOf(*parts.files[p], tensor), BytesOf(*whole, source)) << tensor.name;
      }
    }
    EXPECT_EQ(names.size(), whole->tensors().size());
    for (const TensorInfo& tensor : whole->tensors())
      EXPECT_EQ(names.count(tensor.name), 1u) << tensor.name;
    EXPECT_NE(parts.files[0]->FindTensor("blk.1.attn_q.weight"), nullptr);
    EXPECT_EQ(parts.files[0]->FindTensor("blk.2.attn_q.weight"), nullptr);
    EXPECT_NE(parts.files[1]->FindTensor("blk.2.attn_q.weight"), nullptr);
    EXPECT_NE(parts.files[2]->FindTensor("token_embd.weight"), nullptr);
    EXPECT_EQ(parts.files[2]->FindTensor("blk.0.attn_q.weight"), nullptr);
  }
}

TEST(Split, PartsHaveAllMetadataBitForBit) {
  using testing::RawArray;
  using testing::RawText;
  // This file's tensors lie at multiples of 64.
  const testing::RawGguf good = testing::GoodModel();
  testing::RawGguf raw;
  raw.alignment = 64;
  raw.keys = good.keys;
  raw.SetU32("general.alignment", 64);
  raw.Set("test.strings", GgufValueType::kArray,
          RawArray(GgufValueType::kString, 2, RawText("a") + RawText("\n b")));
  raw.Set("test.nested", GgufValueType::kArray,
          RawArray(GgufValueType::kArray, 1, RawArray(GgufValueType::kU8, 3, "123")));
  raw.Set("test.empty", GgufValueType::kArray, RawArray(GgufValueType::kF64, 0, ""));
  for (size_t i = 0; i < good.tensors.size(); ++i) {
    const auto& tensor = good.tensors[i];
    const uint64_t end =
        i + 1 < good.tensors.size() ? good.tensors[i + 1].offset : good.data.size();
    raw.AddTensor(tensor.name, tensor.dims, tensor.type,
                  good.data.substr(tensor.offset, end - tensor.offset));
  }
  const TempFile source(raw.Bytes());
  const auto whole = GgufFile::Open(source.path());
  TempFile stage, serving;
  WriteSplit(*whole, {{stage.path(), 0, 1}}, serving.path());
  for (const TempFile* path : {&stage, &serving}) {
    const auto part = GgufFile::Open(path->path());
    size_t copied = 0;
    for (const GgufFile::Entry& entry : whole->entries()) {
      if (entry.key == "general.alignment") continue;
      const auto same = std::ranges::find_if(
          part->entries(), [&](const GgufFile::Entry& e) { return e.key == entry.key; });
      ASSERT_NE(same, part->entries().end()) << entry.key;
      EXPECT_EQ(part->RawValue(*same), whole->RawValue(entry)) << entry.key;
      ++copied;
    }
    EXPECT_EQ(copied, raw.keys.size() - 1);
    EXPECT_FALSE(part->Has("general.alignment")) << "the parts lie at the default's multiples";
  }
}

TEST(Split, AShapeIsTheWholeModels) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", architecture, tied));
      const TinyModel model(Shape(architecture, tied), TensorType::kF32, {1, 2, 3, 4, 5, 6, 7, 8});
      const auto whole = GgufFile::Open(model.path());
      const ModelConfig config = ReadModelConfig(*whole);
      EXPECT_EQ(config.part.kind, ModelPart::Kind::kWhole);
      const Parts parts(*whole);
      for (size_t p = 0; p < 3; ++p) {
        const ModelConfig part = ReadModelConfig(*parts.files[p]);
        EXPECT_EQ(part.layers, 5u);
        EXPECT_EQ(part.vocab, config.vocab);
        EXPECT_EQ(part.tied_embeddings, tied);
        EXPECT_EQ(part.kinds[0].Has(TensorRole::kQBias), config.kinds[0].Has(TensorRole::kQBias));
        EXPECT_EQ(part.kinds[0].Has(TensorRole::kQNorm), config.kinds[0].Has(TensorRole::kQNorm));
        EXPECT_EQ(part.kinds[0].rotary.freq_factors, config.kinds[0].rotary.freq_factors)
            << "every stage rotates";
        EXPECT_EQ(part.parameters(), config.parameters());
        EXPECT_EQ(part.types.layers, config.types.layers);
        EXPECT_EQ(part.types.embedding, config.types.embedding);
        EXPECT_EQ(part.types.head, config.types.head);
        EXPECT_EQ(DescriptionOf(part), DescriptionOf(config));
        EXPECT_EQ(part.part.fingerprint, Fingerprint(*whole));
        EXPECT_EQ(Fingerprint(*parts.files[p]), Fingerprint(*whole));
      }
      EXPECT_EQ(Describe(ReadModelConfig(*parts.files[0]).part), "stage 0 of 2: layers 0-1");
      EXPECT_EQ(Describe(ReadModelConfig(*parts.files[1]).part), "stage 1 of 2: layers 2-4");
      EXPECT_EQ(Describe(ReadModelConfig(*parts.files[2]).part), "serving, of 2 stages");
    }
  }
}

// Stages agree whether a model's machine has it whole or in several files, as gguf-split writes
// them.
TEST(Split, AModelInSeveralFilesHasTheSameFingerprint) {
  const TinyModel model(Shape("llama", true));
  const auto whole = GgufFile::Open(model.path());
  const testing::RawGguf raw = testing::RawOf(*whole);
  const TemporaryFolder folder;
  for (const size_t first : {size_t{0}, size_t{1}, raw.tensors.size() / 2}) {
    const auto split = GgufFile::Open(testing::WriteParts(
        folder / "m", testing::PartsOf(raw, {first, raw.tensors.size() - first})));
    EXPECT_EQ(Fingerprint(*split), Fingerprint(*whole));
    const Parts of_split(*split), of_whole(*whole);
    for (size_t i = 0; i < of_whole.files.size(); ++i) {
      EXPECT_EQ(Fingerprint(*of_split.files[i]), Fingerprint(*whole));
      EXPECT_EQ(of_split.files[i]->entries().size(), of_whole.files[i]->entries().size());
      EXPECT_FALSE(of_split.files[i]->Has("split.count"));
    }
  }
}

TEST(Split, OtherWeightsOtherFingerprint) {
  const TinyModel model(Shape("llama", true));
  const auto whole = GgufFile::Open(model.path());
  std::ifstream in(model.path(), std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto changed = [&](size_t row0, size_t rows) {
    const TensorInfo& tensor = whole->Tensor("blk.3.ffn_up.weight");
    std::string with = bytes;
    const size_t row_bytes = RowBytes(tensor.type, tensor.cols);
    for (size_t row = row0; row < row0 + rows; ++row)
      with[tensor.file_offset_bytes + row * row_bytes] ^= 1;
    return Fingerprint(*GgufFile::Open(TempFile(with).path())) != Fingerprint(*whole);
  };
  const size_t rows = whole->Tensor("blk.3.ffn_up.weight").rows;
  ASSERT_GT(rows, 32u);
  EXPECT_TRUE(changed(0, 1));
  EXPECT_TRUE(changed(rows - 1, 1));
  // A fine-tune that keeps the first row; one that changes a sixteenth of a tensor, anywhere.
  EXPECT_TRUE(changed(1, rows - 1));
  for (size_t row = 0; row + CeilDiv(rows, 15) <= rows; ++row)
    EXPECT_TRUE(changed(row, CeilDiv(rows, 15))) << row;
}

TEST(Split, SaysWhatAPartLacks) {
  const TinyModel model(Shape("llama", false));
  const auto whole = GgufFile::Open(model.path());
  const Parts parts(*whole);
  const auto check = [&](const GgufFile& file, size_t first, size_t layers, bool serving) {
    CheckHolds(file, ReadModelConfig(file), first, layers, serving);
  };
  check(*whole, 0, 5, true);
  check(*parts.files[0], 0, 2, false);
  check(*parts.files[1], 3, 2, false);  // fewer layers than the part has
  check(*parts.files[2], 0, 0, true);
  EXPECT_NE(ErrorOf([&] {
              check(*parts.files[0], 2, 3, false);
            }).find("is stage 0 of 2: layers 0-1; expected a file with layers 2-4"),
            std::string::npos);
  EXPECT_NE(
      ErrorOf([&] { check(*parts.files[0], 1, 2, false); }).find("expected a file with layers 1-2"),
      std::string::npos);
  EXPECT_NE(ErrorOf([&] { check(*parts.files[2], 0, 1, false); }).find("is serving, of 2 stages"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] { check(*parts.files[1], 0, 0, true); }).find("expected the serving part"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              parts.files[0]->Tensor("token_embd.weight");
            }).find("the file is a part of a model"),
            std::string::npos);
  TempFile a, b;
  EXPECT_NE(ErrorOf([&] {
              WriteSplit(*parts.files[0], {{a.path(), 0, 5}}, b.path());
            }).find("is stage 0 of 2: layers 0-1 already; expected a whole model"),
            std::string::npos);
}

// A stage with GoodModel's only layer, whose keys and tensors can be falsified.
// larder.split.types of a model of one layer; 0 is F32.
std::string Types(int32_t type) {
  std::string numbers;
  for (size_t i = 0; i < 2 + kOldRoles; ++i) numbers += testing::Raw(type);
  return testing::RawArray(GgufValueType::kI32, 2 + kOldRoles, numbers);
}

testing::RawGguf GoodStage() {
  using testing::Raw;
  testing::RawGguf raw = testing::GoodModel();
  std::erase_if(raw.tensors, [](const auto& tensor) { return !tensor.name.starts_with("blk."); });
  raw.SetText("larder.split.part", "stage");
  raw.SetU32("larder.split.index", 0);
  raw.SetU32("larder.split.count", 1);
  raw.SetU32("larder.split.first_layer", 0);
  raw.SetU32("larder.split.layers", 1);
  raw.SetU32("larder.split.vocab", 3);
  raw.Set("larder.split.tied", GgufValueType::kBool, Raw(uint8_t{0}));
  raw.Set("larder.split.qkv_bias", GgufValueType::kBool, Raw(uint8_t{0}));
  raw.Set("larder.split.fingerprint", GgufValueType::kU64, Raw(uint64_t{7}));
  raw.Set("larder.split.types", GgufValueType::kArray, Types(0));
  const TempFile whole(testing::GoodModel().Bytes());
  ModelConfig config = ReadModelConfig(*GgufFile::Open(whole.path()));
  // What this part does not have is as Types(0) says.
  config.types.embedding = config.types.head = TensorType::kF32;
  for (size_t role = 0; role < kOldRoles; ++role) {
    if (!config.kinds[0].Has(static_cast<TensorRole>(role)))
      config.types.layers[0][role] = TensorType::kF32;
  }
  raw.SetText("larder.split.description", DescriptionOf(config));
  return raw;
}

TEST(Split, WrongPartsAreRefusedInOneLine) {
  const auto read = [](const testing::RawGguf& raw) {
    const TempFile file(raw.Bytes());
    return ReadModelConfig(*GgufFile::Open(file.path()));
  };
  EXPECT_EQ(read(GoodStage()).part.layers, 1u);
  const auto with = [&](const char* key, uint32_t type, const std::string& value) {
    testing::RawGguf raw = GoodStage();
    raw.Set(fmt::format("larder.split.{}", key), static_cast<GgufValueType>(type), value);
    return ErrorOf([&] { read(raw); });
  };
  const auto without = [&](const std::string& key) {
    testing::RawGguf raw = GoodStage();
    raw.EraseKey("larder.split." + key);
    return ErrorOf([&] { read(raw); });
  };
  using testing::Raw;
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  expect(with("part", 8, testing::RawText("st\nage")),
         "'larder.split.part' is 'st\\nage', expected stage or serving");
  expect(with("part", 4, Raw(uint32_t{1})), "larder.split.part");
  expect(with("count", 4, Raw(uint32_t{0})), "'larder.split.count' is 0, expected 1 to 1024");
  expect(with("index", 4, Raw(uint32_t{1})), "'larder.split.index' is 1, expected 0 to 0");
  expect(with("first_layer", 4, Raw(uint32_t{1})),
         "'larder.split.first_layer' is 1, expected 0 to 0");
  expect(with("layers", 4, Raw(uint32_t{2})), "'larder.split.layers' is 2, expected 1 to 1");
  expect(with("layers", 4, Raw(~uint32_t{0})), "expected 1 to 1");
  expect(with("layers", 4, Raw(uint32_t{0})), "expected 1 to 1");
  expect(with("vocab", 4, Raw(~uint32_t{0})), "'larder.split.vocab' is 4294967295, expected 1 to");
  expect(with("tied", 4, Raw(uint32_t{1})), "larder.split.tied");
  for (const char* key : {"index", "count", "first_layer", "layers", "vocab", "tied", "qkv_bias",
                          "fingerprint", "types", "description"})
    expect(without(key), fmt::format("larder.split.{}", key));
  const auto array = static_cast<uint32_t>(GgufValueType::kArray);
  expect(
      with("types", array, testing::RawArray(GgufValueType::kI32, 1, Raw(int32_t{0}))),
      fmt::format("'larder.split.types' has 1 numbers, expected 2 + 1 layers x {} to {}: split the "
                  "model again",
                  kOldRoles, kTensorRoles));
  expect(with("types", array, Types(-1)), "'larder.split.types' has type -1, expected F32");
  expect(with("types", array, Types(4)), "'larder.split.types' has type 4, expected F32");
  expect(with("types", array, Types(12)),
         "Q4_K for rows of 4 elements, expected a multiple of 256");
  expect(without("description"), "an earlier version of larder wrote it; split the model again");
  // Its keys are those of the model that was split: equal tensors do not make it the same model.
  testing::RawGguf other = GoodStage();
  other.Set("llama.rope.freq_base", GgufValueType::kF32, Raw(20000.0f));
  expect(ErrorOf([&] { read(other); }),
         ": is part of another model than was split: it has 'rope.base 20000', not 'rope.base "
         "10000'; split the model again");
  // Its own tensors must exist, and those of other parts must not.
  testing::RawGguf raw = GoodStage();
  raw.EraseTensor("blk.0.ffn_up.weight");
  expect(ErrorOf([&] { read(raw); }), "tensor 'blk.0.ffn_up.weight' is missing");
  raw = testing::GoodModel();
  raw.keys = GoodStage().keys;
  expect(ErrorOf([&] { read(raw); }), "is not part of a llama model");
  // A vocabulary that differs from the serving part's embedding table.
  raw = GoodStage();
  raw.tensors = testing::GoodModel().tensors;
  std::erase_if(raw.tensors, [](const auto& tensor) { return tensor.name.starts_with("blk."); });
  raw.SetText("larder.split.part", "serving");
  raw.SetU32("larder.split.vocab", 4);
  expect(ErrorOf([&] { read(raw); }),
         "tensor 'token_embd.weight' is 3 rows of 4, expected 4 rows of 4");
}

TEST(Split, LeavesNothingHalf) {
  const TinyModel model(Shape("llama", false));
  const auto whole = GgufFile::Open(model.path());
  TempFile stage;
  EXPECT_NE(ErrorOf([&] {
              WriteSplit(*whole, {{stage.path(), 0, 5}}, "/nowhere/serving.gguf");
            }).find("/nowhere/serving.gguf"),
            std::string::npos);
  const auto interrupt = [](uint64_t, uint64_t) { throw Error("interrupted"); };
  TempFile again, serving;
  EXPECT_EQ(ErrorOf([&] {
              WriteSplit(*whole, {{again.path(), 0, 5}}, serving.path(), interrupt);
            }),
            "interrupted");
  EXPECT_FALSE(std::filesystem::exists(again.path()));
  EXPECT_FALSE(std::filesystem::exists(again.path() + ".tmp"));
}

}  // namespace
}  // namespace larder::model::reference
