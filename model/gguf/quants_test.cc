// Quantised types against another engine's reading of the same files (../shared/data/quants) and,
// where these are missing, against checksums of random blocks that this reader gave when it agreed
// with that engine.
#include "model/gguf/quants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "base/test_data_testing.h"
#include "model/gguf/gguf.h"

namespace larder::model::inline gguf {
namespace {

const TensorType kQuants[] = {TensorType::kQ4_0,   TensorType::kQ4_1,   TensorType::kQ5_0,
                              TensorType::kQ5_1,   TensorType::kQ2_K,   TensorType::kQ3_K,
                              TensorType::kQ4_K,   TensorType::kQ5_K,   TensorType::kQ6_K,
                              TensorType::kIQ4_NL, TensorType::kIQ4_XS, TensorType::kMXFP4};

// Blocks of random bits, of which those that are f16 scales are made finite.
std::vector<char> RandomBlocks(TensorType type, size_t n) {
  const auto [elements, bytes] = LayoutOfGgufType(static_cast<uint32_t>(type));
  std::vector<char> blocks(n * bytes);
  std::mt19937 random(static_cast<uint32_t>(type) + 1);
  for (char& byte : blocks) byte = static_cast<char>(random());
  std::vector<size_t> halves = {0};  // where f16 numbers are
  switch (type) {
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      halves = {0, 2};
      break;
    case TensorType::kQ2_K:
      halves = {80, 82};
      break;
    case TensorType::kQ3_K:
      halves = {108};
      break;
    case TensorType::kQ6_K:
      halves = {208};
      break;
    case TensorType::kMXFP4:
      halves = {};
      break;
    default:
      break;
  }
  for (size_t b = 0; b < n; ++b) {
    for (const size_t at : halves) blocks[b * bytes + at + 1] &= static_cast<char>(0xBF);
    if (type == TensorType::kMXFP4) blocks[b * bytes] = static_cast<char>(b % 200);
  }
  return blocks;
}

uint64_t Checksum(std::span<const float> x) {  // FNV-1a
  uint64_t sum = 0xcbf29ce484222325;
  for (const float f : x) sum = (sum ^ __builtin_bit_cast(uint32_t, f)) * 0x100000001b3;
  return sum;
}

TEST(Quants, RandomBlocksHaveTheirChecksums) {
  constexpr uint64_t kChecksums[] = {0x36e5c68280c3cb25, 0x48afbee2dd40816,  0x202bbd06903d8325,
                                     0x5571667af40acb95, 0xf98df6106c2ebdd3, 0x5ac7cd2ff190f6a5,
                                     0x6b178b86ebc50f25, 0x1523cd11a236e505, 0x3048fb53314241ad,
                                     0x2f009a41a9dd70e5, 0xa1804557dccfedad, 0xc7cbfaedb54a325};
  for (size_t i = 0; i < std::size(kQuants); ++i) {
    const TensorType type = kQuants[i];
    const auto [elements, bytes] = LayoutOfGgufType(static_cast<uint32_t>(type));
    constexpr size_t kBlocks = 256;
    const std::vector<char> blocks = RandomBlocks(type, kBlocks);
    std::vector<float> x(kBlocks * elements);
    DequantizeQuants(type, blocks.data(), x);
    EXPECT_TRUE(AllFinite(x));
    EXPECT_EQ(Checksum(x), kChecksums[i])
        << GgufTypeName(static_cast<uint32_t>(type)) << fmt::format(" {:#x}", Checksum(x));
  }
}

TEST(Quants, ExpansionsAreExact) {
  for (const TensorType type : kQuants) {
    if (!IsExpandable(type)) continue;
    const std::vector<char> blocks = RandomBlocks(type, 64);
    std::vector<float> x(64 * kBlock), y(64 * kBlock);
    DequantizeQuants(type, blocks.data(), x);
    std::vector<Q8Block> expanded(64);
    ExpandToQ8_0(type, blocks.data(), 64, expanded.data());
    DequantizeQ8_0(expanded.data(), y);
    EXPECT_EQ(x, y) << GgufTypeName(static_cast<uint32_t>(type));
  }
}

// Every tensor of every file, to the bit.
TEST(Quants, FilesReadAsAnotherEngineReadsThem) {
  const std::string archive = TestData("quants/dequantised-f32.tar.xz");
  LARDER_NEEDS_TEST_DATA(archive);
  const TemporaryFolder folder;
  ASSERT_EQ(
      std::system(("tar -xJf '" + archive + "' -C '" + std::string(folder / "") + "'").c_str()), 0);
  size_t files = 0;
  std::vector<bool> seen(64, false);
  for (const auto& entry : std::filesystem::directory_iterator(TestData("quants"))) {
    if (entry.path().extension() != ".gguf") continue;
    ++files;
    const auto file = GgufFile::Open(entry.path());
    const auto oracle = GgufFile::Open(folder / (entry.path().stem().string() + ".f32.gguf"));
    for (const TensorInfo& tensor : file->tensors()) {
      const TensorInfo& wanted = oracle->Tensor(tensor.name);
      ASSERT_EQ(wanted.rows * wanted.cols, tensor.rows * tensor.cols);
      std::vector<float> got(tensor.rows * tensor.cols), want(got.size());
      file->ReadRowsF32(tensor, 0, tensor.rows, got.data());
      oracle->ReadRowsF32(wanted, 0, wanted.rows, want.data());
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0)
          << entry.path() << ": " << tensor.name << ", " << GgufTypeName(tensor.gguf_type);
      seen.at(tensor.gguf_type) = true;
    }
  }
  EXPECT_EQ(files, 13u);
  for (const TensorType type : kQuants)
    EXPECT_TRUE(seen.at(static_cast<size_t>(type))) << GgufTypeName(static_cast<uint32_t>(type));
}

}  // namespace
}  // namespace larder::model::gguf
