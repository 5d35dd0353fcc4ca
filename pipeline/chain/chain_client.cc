#include "pipeline/chain/chain_client.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/check.h"
#include "base/clock.h"

namespace larder::pipeline::inline chain {
namespace {

// The duration of one attempt to connect; the caller decides how often it tries. Attempts get
// longer, since an emulated adapter may need more time.
constexpr int kReconnectMs = 1000, kLongestReconnectMs = 4000;

// The stage that holds a frame reports it when its limit is exceeded. This end allows for the time
// of that report and for a frame's time in the other stages, each of which may need nearly all of
// its limit.
int64_t WholeLimitNs(int frame_limit_ms, size_t stages) {
  constexpr int64_t kNewsMs = 2000;  // five beats of a LinkMonitor, in case the first is lost
  if (frame_limit_ms == 0) return 0;
  return (int64_t{frame_limit_ms} * static_cast<int64_t>(stages) + kNewsMs) * 1'000'000;
}

}  // namespace

ChainClient::ChainClient(const ChainPlan& chain, const StagePlan& ends,
                         std::vector<StagePlan> stages, const model::GgufFile& file,
                         const ChainOptions& options, SocketStatus& status)
    : threads_(stages.empty()
                   ? nullptr
                   : std::make_unique<StageThreads>(chain, std::move(stages), file, options)),
      chain_(threads_ ? threads_->chain() : chain),
      shape_(chain_.frame_shape()),
      frame_(shape_),
      ends_(ends, file, options),
      wait_(options.wait),
      frame_limit_ms_(options.frame_limit_ms),
      status_(status),
      shown_(std::make_unique<SocketStatus[]>(shape_.reports())),
      listener_(chain_.serving),
      on_lost_(options.on_lost),
      orders_(chain_.socket_chunk_ends()),
      of_stages_(chain_.stages.size()),
      in_flight_(chain_.capacity.max_in_flight),
      logit_row_(chain_.capacity.max_batch_tokens) {
  LARDER_CHECK(ends_.packed().max_batch_tokens() >= shape_.rows.capacity.max_batch_tokens &&
               ends_.packed().max_logit_rows() >= shape_.max_logit_rows);
  std::iota(logit_row_.begin(), logit_row_.end(), 0u);
  if (shape_.expert_reports() > 0) {
    for (const ChainStage& stage : chain_.stages)
      experts_.emplace_back(chain_.StageConfig(stage), 0, stage.first_layer);
  }
  Connect(options.connect_timeout_ms);
}

ChainClient::~ChainClient() {
  if (!connected_) return;
  // All frames in flight return before the stop message does; then the links may be closed.
  if (!SendFrame({.kind = StageFrameHeader::Kind::kStop, .plan_hash = shape_.plan_hash}, nullptr))
    return;
  while (in_.WaitReceive(wait_)) {
    const sync::ReceivedFrame frame = in_.BeginReceive();
    if (!frame || frame.size_bytes < sizeof(StageFrameHeader)) return;
    const bool stop = reinterpret_cast<const StageFrameHeader*>(frame.bytes)->kind ==
                      StageFrameHeader::Kind::kStop;
    in_.EndReceive();
    if (stop) return;
  }
}

std::vector<ExpertCounts> ChainClient::expert_counts() const {
  std::vector<ExpertCounts> all;
  for (const weight_node::ExpertCounters& stage : experts_)
    std::ranges::move(stage.Read(), std::back_inserter(all));
  return all;
}

void ChainClient::FetchExpertCounts() {
  if (experts_.empty()) return;
  const size_t most = std::ranges::max(shape_.expert_numbers);
  for (size_t i = 0; i < most; i += std::size(ExpertReport().numbers)) Poll();
}

// Connects to the first stage, unless an earlier call did, and waits for the last stage to connect.
// At the timeout the first link stays, for the next call: otherwise stages that need longer to
// connect to each other would start again from the first one each time.
void ChainClient::Connect(int timeout_ms) {
  const Pulse::Rest rest(status_.pulse);
  const int64_t deadline = NowNs() + int64_t{timeout_ms} * 1'000'000;
  status_.state.store(static_cast<uint32_t>(SocketState::kConnecting), std::memory_order_relaxed);
  if (session_ == 0) {
    const uint64_t session = rdma::NewSession();
    out_ = rdma::ConnectLink(chain_.first, chain_.link_shape(),
                             chain_.identity(chain_.serving_socket, session), timeout_ms);
    session_ = session;
  }
  const auto left_ms = static_cast<int>(std::max<int64_t>(1000, (deadline - NowNs()) / 1'000'000));
  CheckFirstLink();
  try {
    in_ = listener_.Accept(chain_.link_shape(), chain_.identity(chain_.serving_socket, session_),
                           left_ms);
  } catch (const Error&) {
    CheckFirstLink();
    throw;
  }
  sent_ = received_ = 0;
  connected_ = true;
  told_ = false;
  watch_ = std::make_unique<LinkWatch>(
      in_, static_cast<uint32_t>(chain_.stages.size()), out_, 1u,
      [this](const Loss& loss) {
        Tell({chain_.socket_of_rank(loss.rank), loss.why, loss.stopped});
      },
      FrameLimit{.status = &status_,
                 .limit_ns = WholeLimitNs(frame_limit_ms_, chain_.stages.size()),
                 .holder = {}});
  status_.state.store(static_cast<uint32_t>(SocketState::kServing), std::memory_order_relaxed);
  SetStates(SocketState::kServing);
}

// Once for each connection, whichever thread is the first.
void ChainClient::Tell(const LostPeer& peer) {
  if (!told_.exchange(true) && on_lost_) on_lost_(peer);
}

void ChainClient::CheckFirstLink() {
  const sync::Fault fault = out_.fault();
  if (!fault) return;
  const std::string why = out_.FaultText();
  CloseLinks();
  if (fault.names_rank() && fault.detail > 0 && fault.detail <= chain_.stages.size()) {
    throw Error("the chain is broken at stage {} (socket {}): {}", fault.detail,
                chain_.stages[fault.detail - 1].socket, why);
  }
  throw Error("the chain is broken: {}", why);
}

void ChainClient::SetStates(SocketState of_stages) {
  for (size_t i = 0; i < shape_.reports(); ++i)
    shown_[i].state.store(static_cast<uint32_t>(of_stages), std::memory_order_relaxed);
}

void ChainClient::Disconnect() {
  watch_.reset();
  connected_ = false;
  SocketStatus::Add(status_.reconnects, 1);
  status_.state.store(static_cast<uint32_t>(SocketState::kFailed), std::memory_order_relaxed);
  SetStates(SocketState::kConnecting);
  CloseLinks();
}

void ChainClient::CloseLinks() {
  SocketStatus::Add(status_.frames_finished, sent_ - received_);
  session_ = 0;
  orders_.Clear();
  out_ = {};
  in_ = {};
  sent_ = received_ = 0;
}

void ChainClient::Lost() {
  const Loss loss = watch_->Lost().value_or(Loss{});
  const uint32_t rank = loss.rank;
  Disconnect();
  if (rank > 0 && rank <= chain_.stages.size()) {
    shown_[(rank - 1) * shape_.reports_per_stage()].state.store(
        static_cast<uint32_t>(SocketState::kFailed), std::memory_order_relaxed);
    throw ChainLostError("lost stage {} of {} (socket {}): {}", rank, chain_.stages.size(),
                         chain_.stages[rank - 1].socket, loss.why);
  }
  throw ChainLostError("lost the chain: {}", loss.why);
}

void ChainClient::ConnectAgain() {
  try {
    Connect(std::min(kReconnectMs << std::min(attempts_ / 2, 4), kLongestReconnectMs));
    attempts_ = 0;
  } catch (const Error& error) {
    attempts_ += session_ == 0;  // if only the last stage is missing, attempts stay short
    throw ChainLostError("{}", error.what());
  }
}

// rank: of the socket that is the cause; 0: it is not known.
void ChainClient::Fail(sync::FaultCode code, uint32_t rank, const std::string& why) {
  Tell({chain_.socket_of_rank(rank), why});
  in_.Fail(code);
  out_.Fail(code);
  Disconnect();
  throw ChainLostError("{}", why);
}

void ChainClient::Lose(const char* why) {
  if (connected_) Fail(sync::FaultCode::kTimeout, 0, why);
}

void ChainClient::WrongFrame(const char* wrong) {
  SocketStatus::Add(status_.wrong_frames, 1);
  Fail(sync::FaultCode::kMalformed, static_cast<uint32_t>(chain_.stages.size()),
       fmt::format("{} sent a wrong frame: {}", in_.peer(), wrong));
}

}  // namespace larder::pipeline::chain
