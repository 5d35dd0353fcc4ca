// Test support: files and batches of a folder, answered by the test itself.
#pragma once

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "serving/api/defaults_testing.h"
#include "serving/batch/batch_jobs.h"
#include "serving/batch/batch_store.h"

namespace larder::serving::inline batch {

inline std::string TestRequest(const std::string& id) {
  return fmt::format(
      R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{{"prompt":"hello"}}}})"
      "\n",
      id);
}

// A process that keeps a folder, and what it logs.
struct TestBatches {
  explicit TestBatches(const std::string& folder, const BatchQuota& quota = {})
      : store(folder, quota, [this](const std::string& line) { log.push_back(line); }) {}

  StoredFile Send(const std::string& text, Tenant tenant = kEverybody) {
    const auto upload = store.NewUpload(tenant);
    upload->Write(text);
    return upload->Finish("in.jsonl");
  }
  void Begin(bool checks = true) {
    jobs = std::make_unique<BatchJobs>(
        store, defaults, BatchFacts{.engine = "test", .options = options},
        [this](Tenant tenant) { return tenant != unknown; },
        [this](const std::string& line) { log.push_back(line); });
    for (const std::string& id : store.Unfinished()) jobs->Open(id);
    if (checks) Check();
  }
  // Has all files checked that can be.
  void Check() {
    while (jobs->Step()) {
    }
  }
  std::string Create(const std::string& input, Tenant tenant = kEverybody) {
    BatchRecord record;
    record.tenant = tenant;
    record.input = input;
    record.endpoint = "/v1/completions";
    record.window = "24h";
    const std::string id = store.AddBatch(std::move(record)).id;
    jobs->Open(id);
    Check();
    return id;
  }
  std::vector<BegunRequest> Next(size_t most) {
    std::vector<BegunRequest> begun;
    jobs->Next(most, begun);
    return begun;
  }
  // An answer that depends on the request and its job alone, like a model's.
  void Answer(const BegunRequest& begun, int status = 200) {
    const BatchRequest& request = begun.request;
    const uint64_t seed =
        request.prepared.specs.empty() ? 0 : request.prepared.specs[0].sampling.seed;
    jobs->Answer(begun.ticket, request.line,
                 {.status = status,
                  .body = {{"of", request.line.custom_id}, {"seed", seed}},
                  .make = {},
                  .why = "w"});
  }
  // Answers up to so many requests; returns how many there were.
  size_t Run(size_t most = SIZE_MAX) {
    size_t answered = 0;
    for (; answered < most; ++answered) {
      const auto begun = Next(1);
      if (begun.empty()) break;
      Answer(begun[0], begun[0].request.line.custom_id.starts_with("bad") ? 400 : 200);
    }
    return answered;
  }
  std::vector<std::string> Lines(const std::string& id) {
    std::vector<std::string> lines;
    std::ifstream file(store.PathOf(id));
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  }

  std::vector<std::string> log;
  BatchStore store;
  CompletionDefaults defaults = TinyDefaults();
  std::string options = "default";
  Tenant unknown{UINT64_MAX};  // the tenant whose key is not accepted
  std::unique_ptr<BatchJobs> jobs;
};

}  // namespace larder::serving::batch
