#include "node/tasks/bench_report.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "node/options/terminal.h"
#include "serving/metrics/experts.h"

namespace larder::node::inline tasks {
namespace {

constexpr size_t kNameWidth = 28;

std::string Percent(double value, double limit) {
  return limit > 0 ? fmt::format("{:.0f} %", 100 * value / limit) : std::string("-");
}

// What is read faster than memory gives it is read from caches.
std::string OfMemory(double value, double limit) {
  return limit > 0 && value > limit ? "caches" : Percent(value, limit);
}

std::string SpeedTable(const BenchModel& model, const std::vector<BenchRun>& runs) {
  std::string out = fmt::format(
      "| {:<{}} | {:>9} | {:>9} | {:>7} | {:>14} | {:>20} |\n"
      "|{:-<{}}|{:->11}|{:->11}|{:->9}|{:->16}|{:->22}|\n",
      "model", kNameWidth, "size", "params", "threads", "test", "t/s", "", kNameWidth + 2, ":", ":",
      ":", ":", ":");
  for (const BenchRun& run : runs) {
    for (const BenchResult& result : run.results) {
      out += fmt::format(
          "| {:<{}} | {:>9} | {:>9} | {:>7} | {:>14} | {:>20} |\n",
          model.config.name.substr(0, kNameWidth), kNameWidth,
          HumanBytes(static_cast<double>(model.tensor_bytes)),
          fmt::format("{:.2f} M", static_cast<double>(model.config.parameters()) * 1e-6),
          run.threads, result.test.name(),
          fmt::format("{:.2f} ± {:.2f}", result.median(), Deviation(result.tokens_per_s)));
    }
  }
  return out;
}

std::string LimitTable(const std::vector<BenchRun>& runs) {
  std::string out = fmt::format(
      "| {:>7} | {:>16} | {:>8} | {:>8} | {:>10} | {:>8} | {:>9} | {:>8} | {:>8} |\n"
      "|{:->9}|{:->18}|{:->10}|{:->10}|{:->12}|{:->10}|{:->11}|{:->10}|{:->10}|\n",
      "threads", "test", "MB/step", "GB/s", "of re-read", "of L3", "of memory", "resident", "GOP/s",
      ":", ":", ":", ":", ":", ":", ":", ":", ":");
  for (const BenchRun& run : runs) {
    for (const BenchResult& result : run.results) {
      const bool decode = result.test.decode;
      auto when_decoding = [&](const std::string& text) {
        return decode && result.bytes_per_step > 0 ? text : std::string("-");
      };
      out += fmt::format(
          "| {:>7} | {:>16} | {:>8} | {:>8} | {:>10} | {:>8} | {:>9} | {:>8} | {:>8.1f} |\n",
          run.threads, result.test.name(),
          when_decoding(fmt::format("{:.2f}", result.bytes_per_step * 1e-6)),
          when_decoding(fmt::format("{:.1f}", result.gbps())),
          when_decoding(Percent(result.gbps(), run.shard_gbps)),
          when_decoding(Percent(result.gbps(), run.machine.l3_all_gbps)),
          when_decoding(OfMemory(result.gbps(), run.machine.dram_all_gbps)),
          result.resident_share ? fmt::format("{:.0f} %", 100 * *result.resident_share) : "-",
          result.gops());
    }
  }
  return out;
}

}  // namespace

std::string BenchMarkdown(const BenchModel& model, const std::vector<BenchRun>& runs) {
  std::string out = SpeedTable(model, runs);
  out += fmt::format(
      "\n{} kernels on {}.\nt/s: median ± standard deviation. Against what this machine read at in "
      "the same run:\n\n",
      model.isa, model.cpu);
  out += LimitTable(runs);
  for (const BenchRun& run : runs) {
    out += fmt::format(
        "\n{} thread(s): {}buffers of {:.1f} MB a thread in L3 at {:.1f} GB/s; memory at {:.1f} "
        "GB/s",
        run.threads,
        run.shard_gbps > 0 ? fmt::format("weights re-read at {:.1f} GB/s; ", run.shard_gbps)
                           : std::string(),
        static_cast<double>(run.machine.l3_bytes_used) * 1e-6, run.machine.l3_all_gbps,
        run.machine.dram_all_gbps);
  }
  return out + "\n";
}

std::string BenchJson(const BenchModel& model, const std::vector<BenchRun>& runs) {
  using nlohmann::json;
  json out = json::array();
  for (const BenchRun& run : runs) {
    for (const BenchResult& result : run.results) {
      const BenchTest& test = result.test;
      json row = {{"test", test.name()},
                  {"model_filename", model.path},
                  {"model_type", model.config.name},
                  {"model_size", model.tensor_bytes},
                  {"model_n_params", model.config.parameters()},
                  {"isa", model.isa},
                  {"cpu_info", model.cpu},
                  {"n_threads", run.threads},
                  {"n_ubatch", run.max_batch_tokens},
                  {"n_prompt", test.decode ? 0 : test.tokens},
                  {"n_gen", test.decode ? test.tokens : 0},
                  {"n_batch_sequences", test.batch},
                  {"n_depth", test.depth},
                  {"avg_ns", std::llround(Mean(result.seconds) * 1e9)},
                  {"stddev_ns", std::llround(Deviation(result.seconds) * 1e9)},
                  {"median_ts", result.median()},
                  {"avg_ts", Mean(result.tokens_per_s)},
                  {"stddev_ts", Deviation(result.tokens_per_s)},
                  {"samples_ns", json::array()},
                  {"samples_ts", result.tokens_per_s},
                  {"gops", result.gops()},
                  {"resident_share_live", nullptr},
                  {"shard_reread_gbps", run.shard_gbps},
                  {"l3_read_gbps", run.machine.l3_all_gbps},
                  {"memory_read_gbps", run.machine.dram_all_gbps}};
      if (result.resident_share) row["resident_share_live"] = *result.resident_share;
      for (const double seconds : result.seconds)
        row["samples_ns"].push_back(std::llround(seconds * 1e9));
      if (test.decode) {
        row["bytes_per_step"] = result.bytes_per_step;
        row["gbps"] = result.gbps();
        auto ratio = [&](const char* key, double limit) {
          if (limit > 0) row[key] = result.gbps() / limit;
        };
        ratio("of_shard_reread", run.shard_gbps);
        ratio("of_l3", run.machine.l3_all_gbps);
        ratio("of_memory", run.machine.dram_all_gbps);
      }
      out.push_back(std::move(row));
    }
  }
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string BreakdownMarkdown(const BenchModel& model, size_t threads,
                              const std::vector<Breakdown>& tests) {
  constexpr size_t kPartWidth = 28, kCellWidth = 18;
  std::string out = fmt::format(
      "{}, {} thread(s), {} kernels on {}.\nMicroseconds per step, and their share; of each part "
      "the fastest seen.\n\n",
      model.config.name, threads, model.isa, model.cpu);
  std::string header = fmt::format("| {:<{}} |", "part of a step", kPartWidth),
              rule(kPartWidth + 2, '-');
  rule = "|" + rule + "|";
  for (const Breakdown& test : tests) {
    header += fmt::format(" {:>{}} |", test.test.name(), kCellWidth);
    rule += fmt::format("{:->{}}|", ":", kCellWidth + 2);
  }
  out += header + "\n" + rule + "\n";
  const auto row = [&](const std::string& name, auto cell) {
    out += fmt::format("| {:<{}} |", name, kPartWidth);
    for (const Breakdown& test : tests) out += fmt::format(" {:>{}} |", cell(test), kCellWidth);
    out += "\n";
  };
  for (size_t p = 0; !tests.empty() && p < tests.front().parts.size(); ++p) {
    row(tests.front().parts[p].name, [&](const Breakdown& test) {
      return fmt::format("{:.1f} ({:>2.0f} %)", test.parts[p].us,
                         100 * test.parts[p].us / test.sum_us());
    });
  }
  row("sum", [](const Breakdown& test) { return fmt::format("{:.1f}        ", test.sum_us()); });
  row("a step as a whole",
      [](const Breakdown& test) { return fmt::format("{:.1f}        ", test.step_us); });
  row("steps", [](const Breakdown& test) { return fmt::format("{}        ", test.steps); });
  const auto limit_row = [&](const std::string& name, auto limit_us, auto us) {
    row("limit of " + name, [&](const Breakdown& test) {
      const double limit = limit_us(test);
      return limit > 0 ? fmt::format("{:.1f} ({:>2.0f} %)", limit, 100 * limit / us(test))
                       : std::string("-");
    });
  };
  for (size_t p = 0; !tests.empty() && p < tests.front().parts.size(); ++p) {
    if (tests.front().parts[p].limit_us == 0) continue;
    limit_row(
        tests.front().parts[p].name, [&](const Breakdown& test) { return test.parts[p].limit_us; },
        [&](const Breakdown& test) { return test.parts[p].us; });
  }
  limit_row("all products", std::mem_fn(&Breakdown::products_limit_us),
            std::mem_fn(&Breakdown::products_us));
  if (!tests.empty() && tests.front().products_limit_us() > 0) {
    out += fmt::format(
        "\nThe limit of a product: multiplying at the peak, {:.0f} GOP/s, or reading its weights "
        "once at {:.0f} GB/s,\nboth measured in this run with all threads. In brackets how much of "
        "it is reached.\n",
        tests.front().peak_gops, tests.front().reread_gbps);
  }
  return out;
}

std::string BreakdownJson(const BenchModel& model,
                          const std::vector<std::pair<size_t, std::vector<Breakdown>>>& runs) {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [threads, tests] : runs) {
    for (const Breakdown& test : tests) {
      nlohmann::json parts = nlohmann::json::object();
      nlohmann::json limits = nlohmann::json::object();
      for (const Breakdown::Part& part : test.parts) {
        parts[part.name] = part.us;
        if (part.limit_us > 0) limits[part.name] = part.limit_us;
      }
      out.push_back({{"model_filename", model.path},
                     {"cpu_info", model.cpu},
                     {"isa", model.isa},
                     {"n_threads", threads},
                     {"test", test.test.name()},
                     {"n_steps", test.steps},
                     {"step_us", test.step_us},
                     {"peak_gops", test.peak_gops},
                     {"reread_gbps", test.reread_gbps},
                     {"parts_us", std::move(parts)},
                     {"limits_us", std::move(limits)}});
    }
  }
  return out.dump(2) + "\n";
}

std::string RoutingMarkdown(const BenchModel& model, const std::vector<BenchRouting>& tests) {
  std::string out = fmt::format(
      "{}, {} kernels on {}. Tokens are random: of real ones the server's page shows the same.\n",
      model.config.name, model.isa, model.cpu);
  for (const BenchRouting& test : tests) {
    out += fmt::format(
        "\n{}:\n\n"
        "| layer | experts | of a token | read in a step | busiest / mean | chosen again | by "
        "chance | first quarter | first half |\n"
        "|------:|--------:|-----------:|---------------:|---------------:|-------------:|---------"
        "--:|--------------:|-----------:|\n",
        test.test.name());
    for (const ExpertCounts& of : test.layers) {
      const size_t experts = of.rows.size();
      // A prompt of one token, and the first of a sequence, follow no other.
      const std::string again = of.followed == 0 ? "-" : fmt::format("{:.1f} %", 100 * of.reuse());
      out += fmt::format(
          "| {:>5} | {:>7} | {:>10} | {:>14.1f} | {:>14.2f} | {:>12} | {:>9.1f} % | {:>11.1f} % | "
          "{:>8.1f} % |\n",
          of.layer, experts, of.used, of.active_per_step(), of.skew(), again,
          100.0 * static_cast<double>(of.used) / static_cast<double>(experts),
          100 * of.hit_rate(experts / 4), 100 * of.hit_rate(experts / 2));
    }
  }
  return out;
}

std::string RoutingJson(const BenchModel& model, const std::vector<BenchRouting>& tests) {
  nlohmann::json out = nlohmann::json::array();
  for (const BenchRouting& test : tests) {
    out.push_back({{"model_filename", model.path},
                   {"cpu_info", model.cpu},
                   {"isa", model.isa},
                   {"test", test.test.name()},
                   {"n_batch_sequences", test.test.batch},
                   {"layers", serving::ExpertsJson(test.layers)["layers"]}});
  }
  return out.dump(2) + "\n";
}

}  // namespace larder::node::tasks
