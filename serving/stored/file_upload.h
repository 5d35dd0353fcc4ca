// FileUpload: a file that a client sends (POST /v1/files, multipart/form-data), written as it
// arrives: only a piece or two is held in memory, however large it is. I/O thread; the thread of
// files writes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serving/batch/batch_service.h"
#include "serving/http/multipart.h"

namespace larder::serving::inline stored {

class FileUpload final : private MultipartParser::Sink {
 public:
  // changed: called when there is room again, or refused() has become a reason; it may destroy
  // this. log: gets the server's own errors, with their paths. Throws Refused: the request has no
  // good boundary.
  FileUpload(BatchService& service, std::string peer, Tenant tenant,
             const std::string& content_type, std::function<void(const std::string&)> log,
             std::function<void()> changed);
  ~FileUpload();
  FileUpload(const FileUpload&) = delete;
  FileUpload& operator=(const FileUpload&) = delete;

  void Feed(std::string_view bytes);
  // True: nothing should be fed at the moment.
  bool full() const { return pending_.size() >= kPieceBytes; }
  size_t held_bytes() const { return pending_.size() + writing_bytes_; }
  const std::optional<Refused>& refused() const { return refused_; }
  // Call when all bytes were fed: makes the file, then `changed` is called. It may have been
  // refused before, or may be refused here.
  void End();
  const std::optional<StoredFile>& file() const { return file_; }

 private:
  static constexpr size_t kPieceBytes = size_t{256} << 10;
  enum class Field { kFile, kPurpose, kOther };
  struct Shared;
  void OnPart(std::string name, std::string filename) override;
  void OnData(std::string_view bytes) override;
  void Refuse(Refused why);
  void WriteSome();
  void Written();
  void Tell();

  BatchService& service_;
  const std::string peer_;
  const std::function<void()> changed_;
  const std::shared_ptr<Shared> shared_;  // with the thread of files
  MultipartParser parser_;
  Field field_ = Field::kOther;
  bool has_file_ = false, ending_ = false, writing_ = false;
  std::string name_, purpose_;
  std::string pending_;  // bytes of the file that nobody writes yet
  size_t writing_bytes_ = 0;
  uint64_t posted_ = 0;  // the last job for the thread of files; 0: there was none
  std::optional<Refused> refused_;
  std::optional<StoredFile> file_;
  // null once this is destroyed
  const std::shared_ptr<FileUpload*> self_ = std::make_shared<FileUpload*>(this);
};

}  // namespace larder::serving::stored
