#include "serving/stored/file_upload.h"

#include <utility>

#include "serving/fields/json_fields.h"

namespace larder::serving::inline stored {
namespace {

constexpr size_t kMostNameBytes = 255;
constexpr size_t kMostPurposeBytes = 64;

std::string BoundaryFor(const std::string& content_type) {
  const std::string boundary = BoundaryOf(content_type);
  if (!boundary.empty()) return boundary;
  throw Refused(400,
                "Content-Type is {}: expected multipart/form-data with a boundary of 1 to 70 "
                "characters",
                Excerpt(content_type));
}

}  // namespace

// What both threads use, one at a time: the I/O thread posts one job after the other.
struct FileUpload::Shared {
  BatchStore::Upload& Open(BatchStore& store) {
    if (!upload) upload = store.NewUpload(tenant);
    return *upload;
  }
  // Does a part of the work, and notes why it failed.
  void Try(const std::function<void()>& what) {
    if (refused) return;
    try {
      what();
    } catch (const Refused& why) {
      refused = why;
    } catch (const Error& error) {
      log(error.what());
      refused = Refused(500, "the server could not keep the file; its log says why");
    }
  }

  Tenant tenant = kEverybody;
  std::function<void(const std::string&)> log;
  std::shared_ptr<BatchStore::Upload> upload;
  std::optional<Refused> refused;
  std::optional<StoredFile> file;
};

FileUpload::FileUpload(BatchService& service, std::string peer, Tenant tenant,
                       const std::string& content_type, std::function<void(const std::string&)> log,
                       std::function<void()> changed)
    : service_(service),
      peer_(std::move(peer)),
      changed_(std::move(changed)),
      shared_(std::make_shared<Shared>()),
      parser_(BoundaryFor(content_type), *this) {
  shared_->tenant = tenant;
  shared_->log = std::move(log);
}

FileUpload::~FileUpload() {
  *self_ = nullptr;
  if (posted_ == 0) return;
  service_.Forget(posted_);
  // What is not a file goes, on the thread that has it.
  service_.Post(peer_, [shared = shared_](BatchService::Files&) { shared->upload = nullptr; }, {});
}

void FileUpload::Refuse(Refused why) {
  if (!refused_) refused_ = std::move(why);
}

void FileUpload::Feed(std::string_view bytes) {
  if (refused_) return;
  if (!parser_.Feed(bytes))
    return Refuse(Refused(400, "the body is not multipart/form-data: {}", parser_.error()));
  if (full()) WriteSome();
}

void FileUpload::OnPart(std::string name, std::string filename) {
  field_ = name == "file" ? Field::kFile : name == "purpose" ? Field::kPurpose : Field::kOther;
  if (field_ != Field::kFile) return;
  if (std::exchange(has_file_, true)) {
    field_ = Field::kOther;
    return Refuse(Refused(400, "file: expected one").On("file"));
  }
  // The name is only shown, never a path; what stands before it is nobody's business.
  name_ = filename.substr(filename.find_last_of("/\\") + 1).substr(0, kMostNameBytes);
}

void FileUpload::OnData(std::string_view bytes) {
  if (field_ == Field::kFile) pending_ += bytes;
  if (field_ == Field::kPurpose && purpose_.size() <= kMostPurposeBytes)
    purpose_ += bytes.substr(0, kMostPurposeBytes + 1 - purpose_.size());
}

void FileUpload::WriteSome() {
  if (writing_ || refused_) return;
  writing_ = true;
  writing_bytes_ = pending_.size();
  auto bytes = std::make_shared<std::string>(std::exchange(pending_, {}));
  posted_ = service_.Post(
      peer_,
      [shared = shared_, bytes](BatchService::Files& files) {
        shared->Try([&] { shared->Open(files.store).Write(*bytes); });
      },
      [self = self_](bool ok) {
        if (*self == nullptr) return;
        if (!ok) (*self)->Refuse(Refused(500, "the server failed to write the file"));
        (*self)->Written();
      });
}

void FileUpload::Written() {
  writing_ = false;
  writing_bytes_ = 0;
  if (shared_->refused) Refuse(*shared_->refused);
  if (ending_ && !refused_) return End();
  if (full()) WriteSome();
  Tell();
}

void FileUpload::Tell() {
  const std::function<void()> changed = changed_;  // it may destroy this
  changed();
}

void FileUpload::End() {
  ending_ = true;
  if (!refused_ && !parser_.done())
    Refuse(Refused(400, "the body is not multipart/form-data: it ends before its last boundary"));
  if (!refused_ && purpose_ != "batch")
    Refuse(Refused(400, "purpose is {}: expected batch", Excerpt(purpose_)).On("purpose"));
  if (!refused_ && !has_file_) Refuse(Refused(400, "file is missing: expected one").On("file"));
  if (refused_) return Tell();
  if (writing_) return;  // Written goes on
  if (!pending_.empty()) return WriteSome();
  posted_ = service_.Post(
      peer_,
      [shared = shared_, name = name_](BatchService::Files& files) {
        shared->Try([&] { shared->file = shared->Open(files.store).Finish(name); });
      },
      [self = self_](bool ok) {
        if (*self == nullptr) return;
        FileUpload& upload = **self;
        if (!ok) upload.Refuse(Refused(500, "the server failed to write the file"));
        if (upload.shared_->refused) upload.Refuse(*upload.shared_->refused);
        upload.file_ = upload.shared_->file;
        upload.Tell();
      });
}

}  // namespace larder::serving::stored
