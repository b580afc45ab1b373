// SPDX-License-Identifier: Apache-2.0
// fixture.cpp -- see fixture.h.
#include "fixture.h"

#include <stdlib.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace narrows::test {

namespace fs = std::filesystem;

// ---- files ----

std::string plugin_file(const std::string& name) { return std::string(NARROWS_TEST_PLUGINS) + "/narrows_" + name + ".so"; }

std::vector<unsigned char> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const std::string& path, const std::vector<unsigned char>& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  REQUIRE(out);
}

Folder::Folder() {
  std::string name = (fs::temp_directory_path() / "narrows-test-XXXXXX").string();
  REQUIRE(mkdtemp(name.data()) != nullptr);
  path_ = fs::canonical(name).string();
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string Folder::add(const std::string& plugin, const std::string& as) const {
  const std::string to = path_ + "/" + (as.empty() ? "narrows_" + plugin + ".so" : as);
  fs::copy_file(plugin_file(plugin), to);
  return to;
}

Environment::Environment(const char* name, const char* value) : name_(name) {
  if (const char* before = getenv(name)) before_ = before;
  if (value != nullptr)
    setenv(name, value, 1);
  else
    unsetenv(name);
}

Environment::~Environment() {
  if (before_)
    setenv(name_.c_str(), before_->c_str(), 1);
  else
    unsetenv(name_.c_str());
}

// ---- errors ----

Error::Error() {
  status = argument = -777;
  native_code = -777;
  std::memset(message, '#', sizeof message);
}

bool Error::untouched() const {
  return status == -777 && argument == -777 && native_code == -777 &&
         std::all_of(message, message + sizeof message, [](char c) { return c == '#'; });
}

bool contains(const std::string& text, const std::string& part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

void expect_refused(int32_t status, const Error& error, int32_t expected, int32_t argument,
                    std::initializer_list<const char*> words) {
  INFO("message: " << error.text());
  CHECK(std::string(nw_status_name(status)) == nw_status_name(expected));
  REQUIRE(status != NW_OK);
  CHECK(error.status == status);
  CHECK(error.argument == argument);
  CHECK(std::memchr(error.message, 0, sizeof error.message) != nullptr);
  CHECK(!error.text().empty());
  for (const char* word : words) {
    INFO("expected word: " << word);
    CHECK(contains(error.text(), word));
  }
}

// ---- runtimes ----

Runtime::Runtime(const Options& options) {
  auto raw = sized<nw_options>();
  raw.plugin_path = options.path.c_str();
  raw.num_threads = options.num_threads;
  raw.plan_cache_capacity = options.plan_cache_capacity;
  raw.log = write_log;
  raw.log_ctx = this;
  Error error;
  const int32_t status = nw_runtime_create(&raw, &rt_, &error);
  INFO(error.text());
  REQUIRE(status == NW_OK);
  REQUIRE(rt_ != nullptr);
}

Runtime::~Runtime() { nw_runtime_destroy(rt_); }

void Runtime::write_log(void* self, int32_t level, const char* message) {
  auto* runtime = static_cast<Runtime*>(self);
  const std::lock_guard lock(runtime->mutex_);
  runtime->log_ += std::to_string(level) + " " + message + "\n";
}

std::string Runtime::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

std::vector<nw_backend_info> Runtime::backends() const {
  std::vector<nw_backend_info> out(nw_backend_count(rt_), sized<nw_backend_info>());
  for (uint32_t i = 0; i < out.size(); ++i) {
    Error error;
    const int32_t status = nw_backend(rt_, i, &out[i], &error);
    INFO(error.text());
    REQUIRE(status == NW_OK);
  }
  return out;
}

nw_backend_info Runtime::backend_of_file(const std::string& path) const {
  std::vector<nw_backend_info> found;
  for (const nw_backend_info& info : backends())
    if (path == info.path) found.push_back(info);
  INFO("looking for " << path << "; log: " << log());
  REQUIRE(found.size() == 1);
  return found[0];
}

std::vector<std::string> Runtime::names() const {
  std::vector<std::string> out;
  for (const nw_backend_info& info : backends())
    if (info.status == NW_OK && !(info.flags & NW_BACKEND_SHADOWED)) out.push_back(info.name);
  return out;
}

Probe& Runtime::probe(const char* backend) const {
  const void* extension = nw_extension(rt_, backend, "probe/1");
  INFO("backend " << backend << "; log: " << log());
  REQUIRE(extension != nullptr);
  return *static_cast<Probe*>(const_cast<void*>(extension));
}

Loaded::Loaded(std::initializer_list<const char*> plugins, Options options) {
  for (const char* plugin : plugins) folder.add(plugin);
  options.path = folder.path();
  runtime = std::make_unique<Runtime>(options);
}

// ---- tensors and calls ----

Array::Array(std::vector<int64_t> extents, DLDevice device, DLDataType dtype) : shape(std::move(extents)) {
  int64_t size = (dtype.bits + 7) / 8;
  for (const int64_t extent : shape) size *= extent;
  memory_ = std::make_shared<std::vector<unsigned char>>(static_cast<size_t>(size) + 256, 0x11);
  tensor.device = device;
  tensor.dtype = dtype;
  const auto address = reinterpret_cast<uintptr_t>(memory_->data());
  tensor.data = memory_->data() + (256 - address % 256) % 256;
  bind();
}

Array Array::view(const Array& base, std::vector<int64_t> shape, std::vector<int64_t> strides, uint64_t byte_offset) {
  Array out;
  out.shape = std::move(shape);
  out.strides = std::move(strides);
  out.memory_ = base.memory_;
  out.tensor = base.tensor;
  out.tensor.byte_offset = byte_offset;
  out.bind();
  return out;
}

Array::Array(Array&& other) noexcept
    : tensor(other.tensor), shape(std::move(other.shape)), strides(std::move(other.strides)), memory_(std::move(other.memory_)) {
  bind();
}

void Array::bind() {
  tensor.ndim = static_cast<int32_t>(shape.size());
  tensor.shape = shape.data();
  tensor.strides = strides.empty() ? nullptr : strides.data();
}

bool Array::pristine() const {
  return std::all_of(memory_->begin(), memory_->end(), [](unsigned char byte) { return byte == 0x11; });
}

Call::Call(const char* op, std::vector<Array*> input_arrays, std::vector<Array*> output_arrays) {
  for (const Array* array : input_arrays) inputs.push_back(array == nullptr ? nullptr : &array->tensor);
  for (const Array* array : output_arrays) outputs.push_back(array == nullptr ? nullptr : &array->tensor);
  arrays_ = std::move(output_arrays);
  raw.struct_size = sizeof raw;
  raw.op = op;
  raw.num_inputs = static_cast<uint32_t>(inputs.size());
  raw.num_outputs = static_cast<uint32_t>(outputs.size());
  raw.inputs = inputs.data();
  raw.outputs = outputs.data();
}

Call& Call::blob(std::vector<unsigned char> bytes) {
  params_ = std::move(bytes);
  raw.params = params_.empty() ? nullptr : params_.data();
  raw.params_size = params_.size();
  return *this;
}

int32_t Call::run(nw_runtime* rt) {
  error = Error();
  return nw_run(rt, &raw, &error);
}

int32_t Call::infer(nw_runtime* rt, std::vector<nw_spec>& specs) {
  error = Error();
  return nw_infer(rt, &raw, specs.data(), static_cast<uint32_t>(specs.size()), &error);
}

int32_t Call::plan(nw_runtime* rt, nw_plan** out, nw_plan_info* info) {
  error = Error();
  return nw_plan_get(rt, &raw, out, info, &error);
}

void Call::ok(nw_runtime* rt) {
  const int32_t status = run(rt);
  INFO((status == NW_OK ? "" : error.text()));
  REQUIRE(status == NW_OK);
  CHECK(error.untouched());
}

void Call::refused(nw_runtime* rt, int32_t status, int32_t argument, std::initializer_list<const char*> words) {
  std::vector<std::vector<unsigned char>> before;
  for (const Array* array : arrays_) before.push_back(array == nullptr ? std::vector<unsigned char>() : array->bytes());
  expect_refused(run(rt), error, status, argument, words);
  for (size_t i = 0; i < arrays_.size(); ++i)
    if (arrays_[i] != nullptr) CHECK(arrays_[i]->bytes() == before[i]);
  CHECK(nw_run(rt, &raw, nullptr) == status);
}

}  // namespace narrows::test
