// reference_logits: the scalar float32 reference's logits of token ids, teacher-forced, and the
// distance of other engines' logits from them and from each other. Part of bench/compare; not a
// benchmark.
//   reference_logits --model M --make-ids 160                            ids for --ids, to stdout
//   reference_logits --model M --ids F [--logits OUT] [--with NAME=LOGITS]...   JSON to stdout
// An ids file has decimal numbers separated by spaces. Logits files are [ids][vocab] float32.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/config/config.h"
#include "model/gguf/gguf.h"
#include "model/reference/divergence.h"
#include "model/reference/reference.h"

namespace larder::bench {
namespace {

struct Options {
  std::string model, ids, logits;
  std::vector<std::pair<std::string, std::string>> with;  // name, file
  size_t make_ids = 0;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 >= argc) throw Error("{}: a value must follow", flag);
    const std::string value = argv[i + 1];
    if (flag == "--model") {
      options.model = value;
    } else if (flag == "--ids") {
      options.ids = value;
    } else if (flag == "--logits") {
      options.logits = value;
    } else if (flag == "--make-ids") {
      options.make_ids = std::stoul(value);
    } else if (flag == "--with" && value.find('=') != std::string::npos) {
      options.with.emplace_back(value.substr(0, value.find('=')),
                                value.substr(value.find('=') + 1));
    } else {
      throw Error("{} {}: expected --model, --ids, --logits, --make-ids or --with NAME=FILE", flag,
                  value);
    }
  }
  if (options.model.empty()) throw Error("--model FILE is missing");
  return options;
}

void PrintIds(size_t n, size_t vocab) {
  uint32_t state = 1;
  for (size_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    std::printf("%zu%c", (state >> 8) % vocab, i + 1 == n ? '\n' : ' ');
  }
}

std::vector<model::TokenId> ReadIds(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error("{}: cannot be read", path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<model::TokenId> ids;
  bool in_number = false;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !in_number) ids.push_back(0);
    if (digit) ids.back() = ids.back() * 10 + (c - '0');
    if (digit && ids.back() > 100'000'000) throw Error("{}: {} is no token id", path, ids.back());
    in_number = digit;
  }
  if (ids.empty()) throw Error("{}: no token ids", path);
  return ids;
}

std::vector<float> ReadLogits(const std::string& path, size_t count) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw Error("{}: cannot be read", path);
  const auto bytes = static_cast<size_t>(file.tellg());
  if (bytes != count * sizeof(float)) {
    throw Error(
        "{}: {} bytes, expected {} ({} float32 logits, one row of the vocabulary for each id)",
        path, bytes, count * sizeof(float), count);
  }
  std::vector<float> logits(count);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(logits.data()), static_cast<std::streamsize>(bytes));
  if (!file) throw Error("{}: cannot be read to its end", path);
  return logits;
}

void WriteLogits(const std::string& path, const std::vector<float>& logits) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(logits.data()),
             static_cast<std::streamsize>(logits.size() * sizeof(float)));
  if (!file.flush()) throw Error("{}: cannot be written", path);
}

nlohmann::json Row(const std::string& truth, const std::string& other,
                   const model::Divergence& divergence) {
  return {{"truth", truth},
          {"other", other},
          {"mean_kl", divergence.mean_kl},
          {"max_kl", divergence.max_kl},
          {"top1_agreement", divergence.top1_agreement},
          {"max_logit_error", divergence.max_logit_error}};
}

int Run(const Options& options) {
  const auto file = model::GgufFile::Open(options.model);
  const size_t vocab = model::ReadModelConfig(*file).vocab;
  if (options.make_ids != 0) {
    PrintIds(options.make_ids, vocab);
    return 0;
  }
  const std::vector<model::TokenId> ids = ReadIds(options.ids);
  std::vector<std::pair<std::string, std::vector<float>>> engines;
  for (const auto& [name, path] : options.with)
    engines.emplace_back(name, ReadLogits(path, ids.size() * vocab));
  engines.emplace(engines.begin(), "float32 reference",
                  model::ReferenceModel::Make(file).TeacherForced(ids));
  if (!options.logits.empty()) WriteLogits(options.logits, engines[0].second);
  nlohmann::json rows = nlohmann::json::array();
  for (size_t truth = 0; truth < engines.size(); ++truth) {
    for (size_t other = truth + 1; other < engines.size(); ++other) {
      rows.push_back(
          Row(engines[truth].first, engines[other].first,
              model::CompareLogits(engines[truth].second, engines[other].second, vocab)));
    }
  }
  std::printf("%s\n", nlohmann::json({{"vocab", vocab}, {"ids", ids.size()}, {"divergence", rows}})
                          .dump(1)
                          .c_str());
  return 0;
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  try {
    return larder::bench::Run(larder::bench::Parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "reference_logits: %s\n", error.what());
    return 1;
  }
}
