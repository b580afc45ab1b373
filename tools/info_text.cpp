// SPDX-License-Identifier: Apache-2.0
// info_text.cpp -- the text of `narrows info`.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "demo/report.h"
#include "info.h"
#include "terminal.h"

namespace narrows::tools {
namespace {

std::string padded(const std::string& text, size_t width) {
  return text.size() >= width ? text : text + std::string(width - text.size(), ' ');
}
std::string right(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

void heading(const char* text) { std::printf("\n%s\n", bold(text).c_str()); }

std::string memory_text(uint64_t bytes) {
  char text[48];
  if (bytes == 0) return "an unknown size of memory";
  std::snprintf(text, sizeof text, "%.1f GiB memory", static_cast<double>(bytes) / (1 << 30));
  return text;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::vector<std::string> words(const char* const* list) {
  std::vector<std::string> out;
  for (; list != nullptr && *list != nullptr; ++list) out.emplace_back(*list);
  return out;
}

void print_package(const InstalledPlugin* package) {
  if (package == nullptr || package->distribution.empty()) return;
  std::printf("  %s%s\n", padded("", 12).c_str(), printable("from " + package->distribution + " " + package->version).c_str());
}

// The widths of the columns of plugins: two spaces stand behind the longest.
struct Columns {
  explicit Columns(const Info& info) {
    for (const nw_backend_info& b : info.plugins) {
      name = std::max(name, std::strlen(b.name) + 2);
      version = std::max(version, std::strlen(b.version) + 2);
    }
  }
  size_t name = 10, version = 10;
};

void print_left_out(const LeftOut& left_out, const Columns& widths) {
  std::printf("  %s%s%s%s%s\n", yellow(padded(left_out.crashed ? "crashed" : "refused", 12)).c_str(),
              padded("-", widths.name).c_str(), padded("-", widths.version).c_str(), padded("-", 8).c_str(),
              printable(left_out.plugin.path).c_str());
  std::printf("  %s%s\n", padded("", 12).c_str(), printable(left_out.plugin.reason).c_str());
  print_package(&left_out.plugin);
}

void print_plugin(const nw_backend_info& b, const Columns& widths, const InstalledPlugin* package) {
  const std::string result = padded(verdict(b), 12);
  const bool good = usable(b);
  std::printf("  %s%s%s%s%s\n",
              (good                ? green(result)
               : b.status == NW_OK ? dim(result)
                                   : yellow(result))
                  .c_str(),
              padded(b.name[0] != 0 ? b.name : "-", widths.name).c_str(),
              padded(b.version[0] != 0 ? b.version : "-", widths.version).c_str(),
              padded(b.device_type == 0 ? "-" : device_type_name(b.device_type), 8).c_str(), printable(b.path).c_str());
  if (b.reason[0] != 0)
    std::printf("  %s%s\n", padded("", 12).c_str(),
                printable((good                       ? ""
                           : verdict(b) == "shadowed" ? "by "
                                                      : "") +
                          std::string(b.reason))
                    .c_str());
  print_package(package);
}

void print_devices(const Info& info) {
  heading("Devices");
  if (info.devices.empty()) std::printf("  none\n");
  for (const DeviceFound& d : info.devices) {
    const std::string id = std::string(device_type_name(d.device.device_type)) + " " + std::to_string(d.device.device_id);
    if (!d.trouble.empty()) {
      std::printf("  %s%s\n", padded(id, 10).c_str(), red(printable(d.trouble)).c_str());
      continue;
    }
    std::printf("  %s%s: %s, %s, by %s\n", padded(id, 10).c_str(), printable(d.info.name).c_str(), printable(d.info.arch).c_str(),
                memory_text(d.info.total_memory).c_str(), d.backend.c_str());
  }
}

void print_threads(const ThreadCount& count) {
  heading("Threads of a call on the CPU");
  std::vector<std::string> limits;
  limits.reserve(count.limits.size());
  for (const ThreadCount::Limit& limit : count.limits)
    limits.push_back(std::string(limit.source) + " " + std::to_string(limit.threads));
  std::printf("  %u, the smallest of: %s\n", count.threads, joined(limits).c_str());
  for (const std::string& ignored : count.ignored) std::printf("  %s\n", yellow(printable(ignored)).c_str());
}

void print_dtype_header(const char* first, size_t first_width, size_t width) {
  std::string line = padded(first, first_width);
  for (const Dtype& dtype : kDtypes) line += right(dtype.short_name, width);
  std::printf("  %s\n", dim(line).c_str());
}

std::string cell(const OpSupport& op, size_t dtype, size_t width) {
  const auto count = op.count(dtype);
  if (count.legal == 0) return dim(right("-", width));
  const bool functions = op.functions.size() > 1;
  const bool all = count.supported == count.legal;
  const std::string text = functions ? std::to_string(count.supported) + (all ? "" : "/" + std::to_string(count.legal))
                           : all     ? "yes"
                                     : "no";
  return all ? green(right(text, width)) : yellow(right(text, width));
}

void print_functions(const OpSupport& op) {
  if (op.functions.size() < 2) return;
  heading(("Functions of " + op.op).c_str());
  print_dtype_header("function", 22, 6);
  for (const FunctionSupport& f : op.functions) {
    std::string line = padded(f.name, 22);
    for (const Support support : f.dtypes)
      line += support == Support::yes  ? green(right("yes", 6))
              : support == Support::no ? yellow(right("no", 6))
                                       : dim(right("-", 6));
    std::printf("  %s\n", line.c_str());
  }
}

void print_kernels(const OpSupport& op, bool verbose) {
  constexpr size_t kShown = 8;
  if (op.kernels.empty()) return;
  auto shown = op.kernels;
  if (!verbose && shown.size() > kShown)
    shown.resize(kShown), shown.push_back("... (" + std::to_string(op.kernels.size()) + " in all)");
  std::printf("  %s %s\n", padded(op.op, 22).c_str(), joined(shown).c_str());
}

void print_ops(const Info& info, bool verbose) {
  for (const auto& [backend, ops] : info.ops) {
    heading(("Built-in ops of " + backend + ", by asking it").c_str());
    print_dtype_header("op", 22, 7);
    for (const OpSupport& op : ops) {
      std::string line = padded(op.op, 22);
      for (size_t i = 0; i < kDtypes.size(); ++i) line += cell(op, i, 7);
      std::printf("  %s\n", line.c_str());
    }
    std::printf("  %s\n", dim("a number: that many functions of elementwise; -: not in the op's contract").c_str());
    if (std::any_of(ops.begin(), ops.end(), [](const OpSupport& op) { return !op.kernels.empty(); })) heading("Kernels");
    for (const OpSupport& op : ops) print_kernels(op, verbose);
    if (!verbose) continue;
    for (const OpSupport& op : ops) print_functions(op);
  }
}

void print_own_op(const std::string& backend, const nw_op& op) {
  std::printf("  %s of %s: (%s) -> (%s)\n", bold(printable(op.name)).c_str(), backend.c_str(),
              printable(joined(words(op.inputs))).c_str(), printable(joined(words(op.outputs))).c_str());
  for (const nw_param* const* field = op.params; field != nullptr && *field != nullptr; ++field) {
    std::printf("    param %s: %s at byte %u", printable((*field)->name).c_str(), dtype_text((*field)->dtype).c_str(),
                (*field)->offset);
    if ((*field)->values != nullptr) std::printf(", one of %s", printable(joined(words((*field)->values))).c_str());
    std::printf(", initially %g\n", (*field)->initial);
  }
  std::printf("    shapes: %s\n", op.shape_rule != nullptr ? printable(op.shape_rule).c_str() : "the plugin infers them");
  if (op.batch != nullptr) std::printf("    batch: %s\n", printable(op.batch).c_str());
  if (op.backward != nullptr) std::printf("    backward: %s\n", printable(op.backward).c_str());
  if (op.kernels != nullptr) std::printf("    kernels: %s\n", printable(joined(words(op.kernels))).c_str());
}

void print_compilers(const Info& info) {
  if (info.compilers.empty()) return;
  heading("Compilers of tensor programs");
  for (const ProgramCompiler& c : info.compilers)
    std::printf("  %s%s\n", padded(c.backend, Columns(info).name).c_str(),
                c.missing.empty() ? printable(c.description).c_str() : yellow(printable(c.missing)).c_str());
}

void print_missing(const Info& info) {
  heading("Missing");
  if (info.missing.empty() && info.notes.empty()) std::printf("  nothing\n");
  for (const std::string& note : info.notes) std::printf("  %s\n", printable(note).c_str());
  for (const MissingDevice& m : info.missing) std::printf("  %s%s\n", padded(m.device_type, 10).c_str(), printable(m.how).c_str());
  heading("Searched for plugins (narrows_*.so), in this order");
  for (const SearchFolder& f : info.folders)
    std::printf("  %s %s%s\n", padded(f.source, 20).c_str(), printable(f.folder).c_str(),
                f.exists ? "" : yellow(f.folder[0] == '/' ? " (no such folder)" : " (not absolute: not searched)").c_str());
  if (info.folders.size() < 2)
    std::printf("  %s\n", dim("NARROWS_PLUGIN_PATH or --plugin-path adds absolute folders before").c_str());
}

}  // namespace

void print_info(const Info& info, bool verbose) {
  std::printf("%s %s, ABI %u\n", bold("Narrows").c_str(), nw_version(), nw_abi_major());
  heading("Plugins");
  if (info.plugins.empty()) std::printf("  none\n");
  const Columns widths(info);
  for (const nw_backend_info& b : info.plugins) print_plugin(b, widths, package_of(info, b));
  for (const LeftOut& left_out : info.left_out) print_left_out(left_out, widths);
  print_devices(info);
  print_threads(info.threads);
  print_ops(info, verbose);
  if (!info.own_ops.empty()) heading("Plugins' own ops");
  for (const auto& [backend, op] : info.own_ops) print_own_op(backend, *op);
  print_compilers(info);
  print_missing(info);
}

}  // namespace narrows::tools
