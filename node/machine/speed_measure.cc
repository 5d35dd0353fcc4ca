#include "node/machine/speed_measure.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention_node/attention_timer.h"
#include "base/clock.h"
#include "kernels/formats/act_block.h"
#include "kernels/gemm/gemm.h"
#include "kernels/rows/elementwise.h"
#include "kernels/tune/random_product.h"
#include "threadpool/pool.h"
#include "threadpool/wait_choice.h"
#include "topology/arena.h"
#include "topology/probe.h"

namespace larder::node::inline machine {
namespace {

using kernels::ActBlock;
using RowsGops = decltype(pipeline::Speeds::rows_gops);

constexpr size_t kBlocks = 64;  // 2,048 inputs
constexpr size_t kManyRows = size_t{1} << (RowsGops{}.size() - 1);
constexpr size_t kL2Panels = 8;  // 0.3 MB
constexpr size_t kMostBytes = 8 << 20, kLeastBytes = 2 << 20;
constexpr uint32_t kBarriers = 1000, kBarriersOfLayer = 4;

// The median of as many runs as take about `seconds`, at least three, in nanoseconds: what steps
// meet on this machine beside its neighbours, not what it could do without.
template <typename Run>
double MedianNs(double seconds, Run run) {
  const int64_t begin = NowNs();
  std::vector<double> all;
  for (int runs = 0; runs < 3 || SecondsSince(begin) < seconds; ++runs) {
    const int64_t from = NowNs();
    run();
    all.push_back(static_cast<double>(NowNs() - from));
  }
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, middle);
  return *middle;
}

// What one thread needs, on its node; made and used by that thread.
class Products {
 public:
  Products(const kernels::Gemm& gemm, const kernels::Elementwise& elementwise, size_t weight_bytes)
      : gemm_(gemm),
        elementwise_(elementwise),
        panels_(std::max(kL2Panels, weight_bytes / gemm.shape().panel.bytes())),
        arena_(panels_ * gemm.shape().panel.bytes(), topology::NodeOfThisThread()),
        y_(kManyRows * panels_ * kernels::kPanelRows),
        x_(kManyRows * kernels::ActRowBytes(kBlocks) / sizeof(ActBlock) + 1),
        row_(kernels::kNormRows * kBlocks * kernels::kBlock, 0.5f),
        weight_(kBlocks * kernels::kBlock, 1.0f),
        normed_(row_.size()) {
    kernels::FillPanels(gemm.shape().panel, panels_, Panels());
    kernels::FillRows(kManyRows, kBlocks, x_.data());
  }

  // Bytes of weights a nanosecond.
  double OneRowGbps(double seconds) {
    const double ns =
        MedianNs(seconds, [&] { gemm_.Run(Panels(), x_.data(), y_.data(), panels_, 1); });
    return static_cast<double>(panels_ * gemm_.shape().panel.bytes()) / ns;
  }
  // Multiplies and adds a nanosecond.
  double Gops(size_t rows, double seconds) {
    const double ns =
        MedianNs(seconds, [&] { gemm_.Run(Panels(), x_.data(), y_.data(), kL2Panels, rows); });
    return static_cast<double>(2 * rows * kL2Panels * kernels::kPanelRows * kBlocks *
                               kernels::kBlock) /
           ns;
  }
  // Nanoseconds for an element that is normalised and quantised.
  double ElementNs(double seconds) {
    const size_t n = weight_.size();
    const float* from[kernels::kNormRows];
    float* to[kernels::kNormRows];
    for (size_t i = 0; i < kernels::kNormRows; ++i) {
      from[i] = row_.data() + i * n;
      to[i] = normed_.data() + i * n;
    }
    const double ns = MedianNs(seconds, [&] {
      elementwise_.rms_norms(from, weight_.data(), to, kernels::kNormRows, n, 1e-5f);
      for (float* const row : to) elementwise_.quantize(row, x_.data(), n);
    });
    return ns / static_cast<double>(kernels::kNormRows * n);
  }

 private:
  uint8_t* Panels() const { return reinterpret_cast<uint8_t*>(arena_.data()); }

  const kernels::Gemm& gemm_;
  const kernels::Elementwise& elementwise_;
  const size_t panels_;
  const topology::Arena arena_;
  std::vector<float> y_;
  std::vector<ActBlock> x_;
  const std::vector<float> row_, weight_;
  std::vector<float> normed_;
};

// Nanoseconds of a query head for an element of a key and a value, and for a position.
struct AttentionNs {
  double element = 0, position = 0;
};

// On this thread: attention of one row, by heads of two sizes.
AttentionNs MeasureAttention(kernels::Isa isa, double seconds) {
  constexpr size_t kSmall = 64, kGroup = 4, kHeads = 8;
  const auto of = [&](size_t head_size) {
    attention_node::AttentionTimer timer(isa, head_size, kGroup, kHeads,
                                         topology::NodeOfThisThread());
    const kernels::AttentionTuning tuning =
        kernels::DefaultTuning(isa).ForAttention(CeilDiv(head_size, kernels::kBlock), kGroup);
    const double ns =
        MedianNs(seconds / 2, [&] { timer.Round(tuning, kernels::AttentionWork::kDecode); });
    return ns / (kGroup * kHeads * attention_node::AttentionTimer::kDecodeDepth);
  };
  const double small = of(kSmall), large = of(2 * kSmall);
  const double element =
      std::clamp((large - small) / kSmall, 0.5 * large / (2 * kSmall), large / (2 * kSmall));
  return {.element = element, .position = std::max(0.0, small - kSmall * element)};
}

// Microseconds of the barriers of a layer.
double LayerSyncUs(threadpool::Pool& pool, double seconds) {
  const std::vector<threadpool::Step> steps(kBarriers, {.barrier = true});
  const std::vector<threadpool::Program> programs(static_cast<size_t>(pool.threads()),
                                                  {steps.data(), kBarriers});
  return MedianNs(seconds, [&] { pool.Execute(programs, nullptr, 1); }) * 1e-3 / kBarriers *
         kBarriersOfLayer;
}

double HopUs(const topology::Topology& machine) {
  const auto packages = machine.packages();
  if (packages.size() < 2) return 0;
  const auto cpu = [&](size_t i) { return machine.core(packages[i].cores.front()).cpus.front(); };
  return topology::HandOverNs(cpu(0), cpu(1)) * 1e-3;
}

}  // namespace

pipeline::Speeds MeasureSpeeds(const topology::Topology& machine, kernels::Isa isa, double seconds,
                               const pipeline::Speeds& otherwise) {
  const std::vector<CoreId> cores = machine.PickCores(machine.cores().size());
  const std::vector<CpuId> cpus = machine.CpusOf(cores);
  const auto threads = static_cast<double>(cpus.size());
  const topology::MachineBandwidth memory =
      topology::MeasureBandwidth(machine, cpus, 0, seconds / 2);
  pipeline::Speeds speeds = otherwise;
  speeds.rows_gops = {};
  const auto take = [&](double pipeline::Speeds::*speed, double found) {
    if (found > 0) speeds.Set(speed, found, pipeline::SpeedSource::kMeasured);
  };
  using pipeline::Speeds;
  take(&Speeds::dram_socket_gbps,
       memory.dram_all_gbps / static_cast<double>(std::max<size_t>(1, machine.packages().size())));
  take(&Speeds::dram_core_gbps, memory.dram_one_gbps);
  take(&Speeds::package_hop_us, HopUs(machine));
  if (cpus.size() > 1) take(&Speeds::core_hop_us, topology::HandOverNs(cpus[0], cpus[1]) * 1e-3);

  const kernels::PanelShape panel{kBlocks};
  const size_t l3_bytes = machine.total_l3_bytes() / cpus.size() / 2;
  struct Context {
    const kernels::Gemm gemm;
    const kernels::Elementwise& elementwise;
    size_t weight_bytes;
    double seconds;
    std::vector<double> gbps;  // of each thread
    std::vector<RowsGops> gops;
    std::vector<double> element_ns;
    kernels::Isa isa;
    std::vector<AttentionNs> attention;
  };
  const size_t weight_bytes = std::clamp(l3_bytes, kLeastBytes, kMostBytes);
  const size_t most_panels = std::max(kL2Panels, weight_bytes / panel.bytes());
  Context context{.gemm = kernels::Gemm::Make(
                      isa,
                      {.panel = panel,
                       .x_stride_bytes = kernels::ActRowBytes(kBlocks),
                       .y_stride_bytes = most_panels * kernels::kPanelRows * sizeof(float)},
                      kernels::DefaultTuning(isa)),
                  .elementwise = kernels::GetElementwise(isa),
                  .weight_bytes = weight_bytes,
                  .seconds = seconds / 8,
                  .gbps = std::vector<double>(cpus.size()),
                  .gops = std::vector<RowsGops>(cpus.size()),
                  .element_ns = std::vector<double>(cpus.size()),
                  .isa = isa,
                  .attention = std::vector<AttentionNs>(cpus.size())};
  std::vector<int> packages(cores.size());
  std::ranges::transform(cores, packages.begin(),
                         [&](CoreId core) { return machine.core(core).package; });
  threadpool::Pool pool({.cpus = cpus,
                         .group_of_thread = machine.GroupsOf(cores),
                         .wait = threadpool::ChooseWaitPolicy(machine, cpus, false),
                         .package_of_thread = packages});
  pool.ForEach(
      [](void* at, int thread) {
        auto& c = *static_cast<Context*>(at);
        const auto t = static_cast<size_t>(thread);
        Products products(c.gemm, c.elementwise, c.weight_bytes);
        c.gbps[t] = products.OneRowGbps(c.seconds);
        RowsGops& gops = c.gops[t];
        for (size_t i = 0; i < gops.size(); ++i)
          gops[i] = products.Gops(size_t{1} << i, c.seconds / static_cast<double>(gops.size()));
        c.element_ns[t] = products.ElementNs(c.seconds);
        c.attention[t] = MeasureAttention(c.isa, c.seconds);
      },
      &context);
  const auto mean = [&](const std::vector<double>& of_threads) {
    double sum = 0;
    for (const double value : of_threads) sum += value;
    return sum / threads;
  };
  take(&Speeds::l3_core_gbps, mean(context.gbps));
  for (const RowsGops& of_thread : context.gops) {
    for (size_t i = 0; i < of_thread.size(); ++i) speeds.rows_gops[i] += of_thread[i] / threads;
  }
  take(&Speeds::core_gops, speeds.rows_gops.back());
  take(&Speeds::element_ns, mean(context.element_ns));
  double element_ns = 0, position_ns = 0;
  for (const AttentionNs& of_thread : context.attention) {
    element_ns += of_thread.element / threads;
    position_ns += of_thread.position / threads;
  }
  take(&Speeds::attention_element_ns, element_ns);
  take(&Speeds::attention_position_ns, position_ns);
  // A package's own barriers; what goes between packages is counted apart.
  if (machine.packages().size() == 1) take(&Speeds::layer_sync_us, LayerSyncUs(pool, seconds / 8));
  return speeds;
}

}  // namespace larder::node::machine
