#include "model/gguf/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/error_testing.h"
#include "base/test_data_testing.h"
#include "model/gguf/gguf_testing.h"

namespace larder::model::inline gguf {
namespace {

using testing::GoodModel;
using testing::Raw;
using testing::RawArray;
using testing::RawGguf;
using testing::RawText;
using testing::TempFile;
using Type = GgufValueType;

void ExpectContains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' has no '" << part << "'";
}

TEST(Gguf, ReadsWhatTheWriterWrote) {
  struct Context {
    size_t calls = 0, next_row = 0;
  } context;
  GgufWriter writer;
  writer.Add("a.u32", uint32_t{7});
  writer.Add("a.u64", uint64_t{1} << 40);
  writer.Add("a.f32", 1.5f);
  writer.Add("a.bool", true);
  writer.Add("a.text", "two\nlines");
  writer.Add("a.texts", std::vector<std::string>{"x", "", "yz"});
  writer.Add("a.ints", std::vector<int32_t>{-1, 2});
  writer.Add("a.floats", std::vector<float>{0.25f, -8.0f});
  writer.AddTensor(
      "matrix", TensorType::kF32, 700, 1024,
      [](void* c, size_t row0, size_t n, void* dst) {
        auto& state = *static_cast<Context*>(c);
        EXPECT_EQ(row0, state.next_row);
        state.next_row += n;
        ++state.calls;
        for (size_t i = 0; i < n * 1024; ++i)
          static_cast<float*>(dst)[i] = static_cast<float>(row0 * 1024 + i);
      },
      &context);
  writer.AddVector("vector", {1.0f, 2.0f, 3.0f});
  const TempFile temp;
  writer.Write(temp.path());
  EXPECT_EQ(context.next_row, 700u);
  EXPECT_GT(context.calls, 1u);  // a large tensor is never in memory as a whole
  EXPECT_FALSE(std::filesystem::exists(temp.path() + ".tmp"));

  const auto file = GgufFile::Open(temp.path());
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->file_bytes(), std::filesystem::file_size(temp.path()));
  EXPECT_EQ(file->GetUnsigned("a.u32"), 7u);
  EXPECT_EQ(file->GetUnsigned("a.u64"), uint64_t{1} << 40);
  EXPECT_EQ(file->GetFloat("a.f32"), 1.5);
  EXPECT_EQ(file->FindBool("a.bool"), true);
  EXPECT_EQ(file->GetString("a.text"), "two\nlines");
  EXPECT_EQ(*file->FindStrings("a.texts"), (std::vector<std::string_view>{"x", "", "yz"}));
  EXPECT_EQ(*file->FindInts("a.ints"), (std::vector<int32_t>{-1, 2}));
  EXPECT_EQ(*file->FindFloats("a.floats"), (std::vector<float>{0.25f, -8.0f}));
  ASSERT_EQ(file->entries().size(), 8u);
  EXPECT_EQ(file->entries()[0].key, "a.u32");
  EXPECT_EQ(file->Describe(file->entries()[4], 3), "'two\\nlines'");
  EXPECT_EQ(file->Describe(file->entries()[5], 2), "['x', '', ... 3 in all]");
  EXPECT_EQ(file->Describe(file->entries()[6], 2), "[-1, 2]");

  const TensorInfo& matrix = file->Tensor("matrix");
  EXPECT_EQ(matrix.rows, 700u);
  EXPECT_EQ(matrix.cols, 1024u);
  std::vector<float> rows(3 * 1024);
  file->ReadRowsF32(matrix, 697, 3, rows.data());
  EXPECT_EQ(rows[0], 697.0f * 1024);
  EXPECT_EQ(rows.back(), 700.0f * 1024 - 1);
  std::vector<float> vector(3);
  file->ReadRowsF32(file->Tensor("vector"), 0, 1, vector.data());
  EXPECT_EQ(vector, (std::vector<float>{1.0f, 2.0f, 3.0f}));
  EXPECT_EQ(file->FindTensor("nothing"), nullptr);
  ExpectContains(ErrorOf([&] { file->Tensor("nothing"); }),
                 temp.path() + ": tensor 'nothing' is missing");
}

TEST(Gguf, WriterThatFailsLeavesNothing) {
  GgufWriter writer;
  ExpectContains(ErrorOf([&] { writer.Write("/nowhere/at/all.gguf"); }),
                 "/nowhere/at/all.gguf.tmp: can't create");
  const TempFile temp;
  writer.AddTensor(
      "t", TensorType::kF32, 1, 1, [](void*, size_t, size_t, void*) { throw Error("stop"); },
      nullptr);
  EXPECT_EQ(ErrorOf([&] { writer.Write(temp.path()); }), "stop");
  EXPECT_FALSE(std::filesystem::exists(temp.path()));
  EXPECT_FALSE(std::filesystem::exists(temp.path() + ".tmp"));
}

TEST(Gguf, NumbersOfEveryWidth) {
  RawGguf raw;
  raw.Set("u8", Type::kU8, Raw(uint8_t{200}));
  raw.Set("i8", Type::kI8, Raw(int8_t{-3}));
  raw.Set("u16", Type::kU16, Raw(uint16_t{60000}));
  raw.Set("i16", Type::kI16, Raw(int16_t{-300}));
  raw.Set("i32", Type::kI32, Raw(int32_t{5}));
  raw.Set("i64", Type::kI64, Raw(int64_t{-1}));
  raw.Set("u64", Type::kU64, Raw(~uint64_t{0}));
  raw.Set("f64", Type::kF64, Raw(0.1));
  raw.Set("u64s", Type::kArray,
          RawArray(Type::kU64, 2, Raw(uint64_t{1}) + Raw(uint64_t{0x80000000})));
  raw.Set("i8s", Type::kArray, RawArray(Type::kI8, 3, "\xff\x01\x02"));
  raw.Set("nested", Type::kArray,
          RawArray(Type::kArray, 2,
                   RawArray(Type::kU8, 2, "\x01\x02") + RawArray(Type::kString, 1, RawText("s"))));
  raw.Set("bools", Type::kArray, RawArray(Type::kBool, 2, std::string("\x01\x00", 2)));
  raw.Set("ones", Type::kArray,
          RawArray(Type::kU32, 3, Raw(uint32_t{0}) + Raw(uint32_t{1}) + Raw(uint32_t{1})));
  const TempFile temp(raw.Bytes());
  const auto file = GgufFile::Open(temp.path());
  EXPECT_EQ(file->GetUnsigned("u8"), 200u);
  EXPECT_EQ(file->FindSigned("i8"), -3);
  EXPECT_EQ(file->GetUnsigned("u16"), 60000u);
  EXPECT_EQ(file->FindSigned("i16"), -300);
  EXPECT_EQ(file->GetUnsigned("i32"), 5u);
  EXPECT_EQ(file->GetUnsigned("u64"), ~uint64_t{0});
  EXPECT_EQ(file->GetFloat("f64"), 0.1);
  EXPECT_EQ(*file->FindInts("i8s"), (std::vector<int32_t>{-1, 1, 2}));
  EXPECT_EQ(*file->FindFlags("bools"), (std::vector<bool>{true, false}));
  EXPECT_EQ(*file->FindFlags("ones"), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(file->Describe(file->entries()[9], 9), "[-1, 1, 2]");
  EXPECT_EQ(file->Describe(file->entries()[10], 1), "[[1, ... 2 in all], ... 2 in all]");
  EXPECT_EQ(file->Describe(file->entries()[10], 9), "[[1, 2], ['s']]");
  EXPECT_EQ(file->Describe(file->entries()[5], 9), "-1");
  ExpectContains(ErrorOf([&] { file->GetUnsigned("i64"); }),
                 "key 'i64' is -1, expected an unsigned integer");
  ExpectContains(ErrorOf([&] { file->FindSigned("u64"); }),
                 "key 'u64' is 18446744073709551615, expected a signed");
  ExpectContains(ErrorOf([&] { file->FindInts("u64s"); }), "key 'u64s': value 1 does not fit");
  ExpectContains(ErrorOf([&] { file->FindFlags("i8s"); }), "key 'i8s': value 0 is neither 0 nor 1");
  ExpectContains(ErrorOf([&] { file->FindFlags("nested"); }),
                 "key 'nested' is an array of array values, expected an array of bools");
  ExpectContains(ErrorOf([&] { file->FindFlags("u8"); }),
                 "key 'u8' is a u8, expected an array of bools");
  ExpectContains(ErrorOf([&] { file->FindStrings("u64s"); }),
                 "key 'u64s' is an array of u64 values, expected an array");
  ExpectContains(ErrorOf([&] { file->FindFloats("u8"); }),
                 "key 'u8' is a u8, expected an array of floats");
  ExpectContains(ErrorOf([&] { file->FindInts("nested"); }),
                 "key 'nested' is an array of array values");
  ExpectContains(ErrorOf([&] { file->GetFloat("u8"); }), "key 'u8' is a u8, expected a float");
  ExpectContains(ErrorOf([&] { file->FindBool("u8"); }), "key 'u8' is a u8, expected a bool");
  ExpectContains(ErrorOf([&] { file->GetString("f64"); }), "key 'f64' is a f64, expected a string");
  ExpectContains(ErrorOf([&] { file->GetUnsigned("none"); }),
                 "key 'none' is missing, expected an unsigned integer");
  EXPECT_EQ(file->FindUnsigned("none"), std::nullopt);
  EXPECT_EQ(file->FindStrings("none"), std::nullopt);
}

TEST(Gguf, EveryTypeReadsAsF32AndQ8) {
  const TempFile temp(GoodModel().Bytes());
  const auto file = GgufFile::Open(temp.path());
  for (const TensorInfo& tensor : file->tensors()) {
    std::vector<float> values(tensor.rows * tensor.cols);
    file->ReadRowsF32(tensor, 0, tensor.rows, values.data());
    for (const float value : values) ASSERT_EQ(value, 0.5f) << tensor.name;
    const size_t row_blocks = CeilDiv(tensor.cols, kBlock);
    std::vector<Q8Block> blocks(tensor.rows * row_blocks);
    file->ReadRowsQ8_0(tensor, 0, tensor.rows, blocks.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const Q8Block& block = blocks[i / tensor.cols * row_blocks + i % tensor.cols / kBlock];
      ASSERT_NEAR(F16ToF32(block.d) * block.q[i % tensor.cols % kBlock], 0.5f, 0.001f)
          << tensor.name;
    }
  }
}

TEST(Gguf, Q8ReadsAreTheFilesBytesAndAgreeInPieces) {
  RawGguf raw;
  constexpr size_t kRows = 3000, kCols = 160;  // 510 KB: several chunks
  std::string bytes;
  for (size_t b = 0; b < kRows * kCols / kBlock; ++b) {
    bytes += Raw(static_cast<uint16_t>(0x1000 + b % 4096));
    for (size_t i = 0; i < kBlock; ++i) bytes += static_cast<char>(b * 31 + i);
  }
  raw.AddTensor("t", {kCols, kRows}, 8, bytes);
  const TempFile temp(raw.Bytes());
  const auto file = GgufFile::Open(temp.path());
  const TensorInfo& tensor = file->Tensor("t");
  std::vector<Q8Block> blocks(kRows * kCols / kBlock), piece(7 * kCols / kBlock);
  file->ReadRowsQ8_0(tensor, 0, kRows, blocks.data());
  EXPECT_EQ(std::memcmp(blocks.data(), bytes.data(), bytes.size()), 0);
  file->ReadRowsQ8_0(tensor, 1234, 7, piece.data());
  EXPECT_EQ(std::memcmp(piece.data(), bytes.data() + 1234 * RowBytes(TensorType::kQ8_0, kCols),
                        7 * 5 * 34),
            0);
}

TEST(Gguf, BadWeightsAreNamed) {
  RawGguf raw = GoodModel();
  raw.Patch("blk.0.ffn_down.weight", 2 * 34, Raw(uint16_t{0x7c00}));
  raw.Patch("blk.0.attn_q.weight", 2 * 5, Raw(uint16_t{0x7e00}));
  raw.Patch("token_embd.weight", 4 * 11, Raw(-INFINITY));
  raw.Patch("output.weight", 4 * 4, Raw(3e7f));  // finite, but too large for a Q8_0 scale
  const TempFile temp(raw.Bytes());
  const auto file = GgufFile::Open(temp.path());
  const auto q8 = [&](const char* name) {
    return ErrorOf([&] {
      std::vector<Q8Block> blocks(64);
      file->ReadRowsQ8_0(file->Tensor(name), 0, file->Tensor(name).rows, blocks.data());
    });
  };
  ExpectContains(q8("blk.0.ffn_down.weight"),
                 "'blk.0.ffn_down.weight': the scale of block 0 of row 2 is infinite");
  ExpectContains(q8("blk.0.attn_q.weight"),
                 "'blk.0.attn_q.weight': the weight at row 1, column 1 is NaN");
  ExpectContains(q8("token_embd.weight"),
                 "'token_embd.weight': the weight at row 2, column 3 is infinite");
  ExpectContains(q8("output.weight"), "'output.weight': the scale of block 0 of row 1 is infinite");
}

constexpr TensorType kQuantisedTypes[] = {
    TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0,   TensorType::kQ5_1,
    TensorType::kQ8_0, TensorType::kQ2_K, TensorType::kQ3_K,   TensorType::kQ4_K,
    TensorType::kQ5_K, TensorType::kQ6_K, TensorType::kIQ4_NL, TensorType::kIQ4_XS,
    TensorType::kMXFP4};

// A block whose scale is no number is named, by its row, however the rows are read.
TEST(Gguf, BadBlocksOfEveryTypeAreNamed) {
  for (const TensorType type : kQuantisedTypes) {
    const auto [elements, bytes] = LayoutOfGgufType(static_cast<uint32_t>(type));
    const std::string_view name = GgufTypeName(static_cast<uint32_t>(type));
    const std::string good(3 * 2 * bytes, '\0');      // 3 rows of 2 blocks
    std::vector<std::pair<size_t, std::string>> bad;  // in a block: where, and what
    for (const size_t at : F16Offsets(type)) {
      bad.emplace_back(at, Raw(uint16_t{0x7c00}));
      bad.emplace_back(at, Raw(uint16_t{0xfe00}));
    }
    if (bad.empty()) bad.emplace_back(0, Raw(uint8_t{kMaxMxfp4Exponent + 1}));
    for (const auto& [at, value] : bad) {
      RawGguf raw = GoodModel();
      raw.AddTensor("w", {2 * elements, 3}, static_cast<uint32_t>(type), good);
      raw.Patch("w", (2 * 2 + 1) * bytes + at, value);  // block 1 of row 2
      const TempFile temp(raw.Bytes());
      const auto file = GgufFile::Open(temp.path());
      const TensorInfo& w = file->Tensor("w");
      std::vector<char> rows(3 * w.cols * sizeof(float));
      EXPECT_EQ(ErrorOf([&] { file->ReadRowsAs(type, w, 0, 2, rows.data()); }), "no error") << name;
      ExpectContains(ErrorOf([&] { file->ReadRowsAs(type, w, 0, 3, rows.data()); }),
                     " scale of block 1 of row 2 is ");
      if (type == TensorType::kMXFP4) continue;  // its codes are zeros here, and so are its weights
      ExpectContains(
          ErrorOf([&] { file->ReadRowsQ8_0(w, 0, 3, reinterpret_cast<Q8Block*>(rows.data())); }),
          "row 2");
    }
  }
}

// Rows are whole blocks, and the file has all of them.
TEST(Gguf, TensorsOfEveryTypeHaveTheirBytes) {
  for (const TensorType type : kQuantisedTypes) {
    const auto layout = LayoutOfGgufType(static_cast<uint32_t>(type));
    const auto number = static_cast<uint32_t>(type);
    const auto open = [&](uint64_t cols, size_t bytes) {
      RawGguf raw;
      raw.AddTensor("w", {cols, 2}, number, std::string(bytes, '\0'));
      raw.data.resize(bytes);  // no padding
      const TempFile temp(raw.Bytes());
      return ErrorOf([&] { GgufFile::Open(temp.path()); });
    };
    EXPECT_EQ(open(layout.elements, 2 * layout.bytes), "no error");
    ExpectContains(open(layout.elements, 2 * layout.bytes - 1), "lie beyond");
    ExpectContains(
        open(layout.elements / 2, 2 * layout.bytes),
        fmt::format("tensor 'w' is {} with rows of {} elements, expected a multiple of {}",
                    GgufTypeName(number), layout.elements / 2, layout.elements));
    ExpectContains(open(layout.elements << 40, 2 * layout.bytes), "lie beyond");
  }
}

TEST(Gguf, OtherTypesAreListedButNotRead) {
  RawGguf raw = GoodModel();
  raw.AddTensor("extra_iq2", {256, 2}, 16, std::string(132, '\0'));
  raw.AddTensor("extra_new", {7, 2}, 77, std::string(32, '\0'));
  const TempFile temp(raw.Bytes());
  const auto file = GgufFile::Open(temp.path());
  const TensorInfo& tensor = file->Tensor("extra_iq2");
  EXPECT_EQ(GgufTypeName(tensor.gguf_type), "IQ2_XXS");
  EXPECT_EQ(tensor.size_bytes, 132u);
  EXPECT_EQ(file->Tensor("extra_new").size_bytes, 0u);
  std::vector<char> buffer(4096);
  const std::string error = ErrorOf([&] { file->ReadRows(tensor, 0, 1, buffer.data()); });
  ExpectContains(error, "tensor 'extra_iq2' is IQ2_XXS (type 16)");
  ExpectContains(error, "IQ4_XS or MXFP4: convert the model to one of these");
  EXPECT_EQ(
      ErrorOf([&] { file->ReadRowsQ8_0(tensor, 0, 1, reinterpret_cast<Q8Block*>(buffer.data())); }),
      error);
}

TEST(Gguf, VersionTwoAndFilesWithoutTensorsOpen) {
  RawGguf raw = GoodModel();
  raw.version = 2;
  EXPECT_EQ(GgufFile::Open(TempFile(raw.Bytes()).path())->tensors().size(), 12u);
  RawGguf vocabulary;
  vocabulary.SetText("general.architecture", "llama");
  std::string bytes = vocabulary.Bytes();
  bytes.resize(24 + 8 + 20 + 4 + 8 + 5);  // no padding after the last key, as some vocabularies end
  EXPECT_EQ(GgufFile::Open(TempFile(bytes).path())->tensors().size(), 0u);
}

TEST(Gguf, OwnAlignment) {
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    RawGguf raw;
    raw.alignment = alignment;
    raw.SetU32("general.alignment", alignment);
    raw.AddF32("a", {3}, 1.0f);
    raw.AddF32("b", {3}, 2.0f);
    const TempFile temp(raw.Bytes());
    const auto file = GgufFile::Open(temp.path());
    EXPECT_EQ(file->data_offset_bytes() % alignment, 0u);
    float b[3];
    file->ReadRowsF32(file->Tensor("b"), 0, 1, b);
    EXPECT_EQ(b[2], 2.0f);
  }
}

TEST(Gguf, NotAFile) {
  ExpectContains(ErrorOf([] { GgufFile::Open("/nowhere/x.gguf"); }),
                 "/nowhere/x.gguf: can't open: No such file");
  ExpectContains(ErrorOf([] { GgufFile::Open("/tmp"); }), "/tmp: is not a regular file");
  ExpectContains(ErrorOf([] { GgufFile::Open("/dev/null"); }), "/dev/null: is not a regular file");
}

TEST(Gguf, AFileThatShrinksIsAnError) {
  const TempFile temp(GoodModel().Bytes());
  const auto file = GgufFile::Open(temp.path());
  std::filesystem::resize_file(temp.path(), file->data_offset_bytes() + 8);
  float row[4];
  ExpectContains(ErrorOf([&] { file->ReadRowsF32(file->Tensor("token_embd.weight"), 0, 1, row); }),
                 temp.path() + ": token_embd.weight ends at byte");
}

TEST(Gguf, TheDemoModel) {
  const auto file = GgufFile::Open(LARDER_SOURCE_DIR "/model/demo/larder-stories.gguf");
  EXPECT_EQ(file->tensors().size(), 47u);
  const auto tokens = file->FindStrings("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens);
  EXPECT_EQ(tokens->size(), 2048u);
  EXPECT_EQ((*tokens)[3], "<0x00>");
}

TEST(Gguf, RealFiles) {
  const std::string story = TestData("models/stories260K.gguf"),
                    vocabulary = TestData("tokenizers/vocab-llama3.gguf");
  LARDER_NEEDS_TEST_DATA(story);
  LARDER_NEEDS_TEST_DATA(vocabulary);
  EXPECT_EQ(GgufFile::Open(story)->tensors().size(), 48u);
  const auto file = GgufFile::Open(vocabulary);
  const auto tokens = file->FindStrings("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens);
  EXPECT_EQ(tokens->size(), 128256u);
  EXPECT_EQ((*tokens)[128000], "<|begin_of_text|>");
}

}  // namespace
}  // namespace larder::model::gguf
