/* The parts of the OpenCL driver. */
#ifndef OCTET_BACKENDS_OPENCL_OPENCL_PRIVATE_H
#define OCTET_BACKENDS_OPENCL_OPENCL_PRIVATE_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "backends/driver.h"

/* The functions of libOpenCL that are called. */
#define OCT_OPENCL_FUNCTIONS(X)                                                                    \
    X(clGetPlatformIDs)                                                                            \
    X(clGetPlatformInfo)                                                                           \
    X(clGetDeviceIDs)                                                                              \
    X(clGetDeviceInfo)                                                                             \
    X(clCreateContext)                                                                             \
    X(clRetainContext)                                                                             \
    X(clReleaseContext)                                                                            \
    X(clCreateProgramWithSource)                                                                   \
    X(clCreateProgramWithBinary)                                                                   \
    X(clBuildProgram)                                                                              \
    X(clGetProgramBuildInfo)                                                                       \
    X(clGetProgramInfo)                                                                            \
    X(clReleaseProgram)                                                                            \
    X(clCreateKernel)                                                                              \
    X(clReleaseKernel)                                                                             \
    X(clSetKernelArg)                                                                              \
    X(clCreateCommandQueue)                                                                        \
    X(clReleaseCommandQueue)                                                                       \
    X(clCreateBuffer)                                                                              \
    X(clReleaseMemObject)                                                                          \
    X(clEnqueueWriteBuffer)                                                                        \
    X(clEnqueueReadBuffer)                                                                         \
    X(clEnqueueFillBuffer)                                                                         \
    X(clEnqueueNDRangeKernel)                                                                      \
    X(clFinish)

struct oct_opencl {
#define OCT_OPENCL_POINTER(name) __typeof__(name) *name;
    OCT_OPENCL_FUNCTIONS(OCT_OPENCL_POINTER)
#undef OCT_OPENCL_POINTER
};

/* The library, which stays open until the process ends: drivers below it do not bear to be
 * unloaded. UNAVAILABLE: there is none, or one that lacks a function. */
enum octet_status oct_opencl_load(const struct oct_opencl **out,
                                  struct octet_error *err) OCTET_MUST_CHECK;

/* Keeps the process' first context for as long as that runs: opening a device anew after the last
 * one had gone was seen to hang with PoCL 3.1, though not each time. */
void oct_opencl_stay(cl_context context);

/* "CL_OUT_OF_RESOURCES"; "error -9999". */
const char *oct_opencl_error_name(cl_int error, char *buffer, size_t size);

#endif
