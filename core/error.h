// SPDX-License-Identifier: Apache-2.0
// error.h -- how core fails: it throws a Failure, and api.cpp turns that into a status and the caller's nw_error.
// Nothing on the way of a call that succeeds comes through here.
#pragma once

#include <narrows/abi.h>

#include <string>

namespace narrows {

struct Failure {
  int32_t status;
  int32_t argument;  // as in nw_error
  int64_t native_code;
  std::string message;
};

std::string format(const char* text, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void throw_failure(int32_t status, int32_t argument, const char* text, ...) __attribute__((format(printf, 3, 4)));

// Fills *error unless it is NULL; the message is cut between UTF-8 characters. Returns the status.
int32_t write_error(nw_error* error, int32_t status, int32_t argument, int64_t native_code, const char* message) noexcept;

// The exception that is being handled, as a Failure; `who` (may be NULL) and `what` say in whose work it was thrown. Where there is
// no memory for a message it is a short one, so that whoever catches can always go on.
Failure caught(const char* who, const char* what) noexcept;

const char* status_name(int32_t status);

// Throws what a plugin's slot returned, its own error as a Failure with the plugin's name in front of the message, unless that
// begins with it or with the op (may be NULL). A status that does not exist counts as NW_FAILED.
[[noreturn]] void refuse_slot(int32_t status, const nw_error& error, const std::string& plugin, const char* op);

// "(2, 3)", "float32", "CUDA:1": how messages show shapes, dtypes and devices.
std::string show_shape(const int64_t* shape, int32_t ndim);
std::string show_dtype(DLDataType dtype);
std::string show_device(DLDevice device);

}  // namespace narrows
