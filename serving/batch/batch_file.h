// The files of a batch job: requests in, one a line, as OpenAI's batch API has them, and answers
// out. A job holds all that answers depend on besides their requests: the seed and the time for
// requests without their own, and which requests and which model it was. It is kept beside the
// output, so that a job that was killed goes on to the same bytes. One thread.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "serving/api/completion_request.h"

namespace larder::serving::inline batch {

struct BatchLine {
  size_t index = 0;   // number of the request, from 0
  size_t number = 0;  // number of its line in the file, from 1
  std::string custom_id;
  Dialect dialect = Dialect::kCompletion;
  std::string body;  // JSON
};

// Throws an Error that says what is wrong in the line, but not where the line is.
BatchLine ReadBatchLine(std::string_view text);

// 128 bits of a custom_id, which distinguish millions of them. No protection against deliberate
// collisions: they would only harm the owner of the file.
struct IdHash {
  uint64_t high = 0, low = 0;
  auto operator<=>(const IdHash&) const = default;
};
IdHash HashOfId(std::string_view custom_id);

struct BatchInputLimits {
  size_t line_bytes = size_t{64} << 20;
  size_t requests = SIZE_MAX;
};

// What is wrong with a file of requests.
struct BatchProblem {
  size_t line = 0;  // number of the line in the file, from 1; 0: not about one line
  std::string what;
};

// The requests of a file. Takes 24 bytes per request, however long it is, and the memory of one
// line.
class BatchInput {
 public:
  static constexpr size_t kMostProblems = 10, kMostProblemBytes = 500;
  // Throws Error for a request that is wrong.
  using CheckLine = std::function<void(const BatchLine&)>;

  // Throws Error if the file can't be opened.
  BatchInput(std::string path, CheckLine check, const BatchInputLimits& limits = {});

  // Reads that many more lines and checks them: with ReadBatchLine, with `check`, and for
  // custom_ids that occur twice. Returns true after the last line; only then may the other
  // functions be used. Throws Error if the file can't be read.
  bool CheckMore(size_t lines = SIZE_MAX);

  // What is wrong with the file: the first kMostProblems problems, each cut to a length. Next and
  // Find may be used only if there are none.
  const std::vector<BatchProblem>& problems() const { return problems_; }
  size_t wrong_lines() const { return wrong_lines_; }
  size_t requests() const { return ids_.size(); }
  uint64_t hash() const { return hash_; }  // hash of all bytes
  // nullopt: no request has this custom_id.
  std::optional<size_t> Find(std::string_view custom_id) const;
  // The next request; nullopt: that was the last. Throws Error if the file has changed since it was
  // checked.
  std::optional<BatchLine> Next();

 private:
  struct Id {
    IdHash hash;
    size_t index = 0;
  };
  enum class Read { kLine, kTooLong, kEnd };
  Read ReadLine(std::string& line);
  void AddProblem(size_t line, std::string what);
  void EndCheck();

  const std::string path_;
  const CheckLine check_;
  const BatchInputLimits limits_;
  std::ifstream file_;
  size_t number_ = 0, index_ = 0;
  uint64_t hash_ = 0;
  std::vector<Id> ids_;  // sorted by hash once all lines are checked
  std::vector<BatchProblem> problems_;
  size_t wrong_lines_ = 0;
};

// What answers depend on besides their requests.
struct BatchJob {
  uint64_t input_hash = 0;
  size_t requests = 0;
  std::string model;               // its name for clients
  uint64_t model_fingerprint = 0;  // the computation's identity (pipeline/plan/identity.h)
  std::string engine;              // the program's version
  std::string options;             // defaults of the requests, as text
  uint64_t seed = 0;
  int64_t created = 0;  // seconds since 1970

  // Writes it to a new file, whole or not at all. Throws Error.
  void Save(const std::string& path) const;
  static BatchJob Load(const std::string& path);  // throws Error
  // Why a job that was begun as `begun` cannot go on as this one; empty: it can.
  std::string Differs(const BatchJob& begun) const;
};

// The answers. Each is appended as one line, when it is complete.
class BatchOutput {
 public:
  // A new file. Throws Error, also if it exists.
  static BatchOutput Create(const std::string& path);
  // Opens what a job has written: marks the requests with an answer in `done`, and cuts off an
  // incomplete line. Throws Error if a line belongs to no request of `input`.
  static BatchOutput Resume(const std::string& path, const BatchInput& input,
                            std::vector<bool>& done);

  // Cuts off an incomplete line, if the file exists. Throws Error.
  static void CutUnfinished(const std::string& path);

  // Returns the bytes. Throws Error, with nothing half-written that Resume would not cut off.
  size_t Append(const BatchLine& line, int status, const nlohmann::json& body);
  void Sync();  // writes to the disk

 private:
  BatchOutput(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  Descriptor file_;
};

}  // namespace larder::serving::batch
