/* Copies between host and device, through pinned memory.
 *
 * Decision: two stages a queue. From ordinary memory the driver copies through a buffer of its own
 * and makes the caller wait for the whole; with ours the next piece is filled while the last one
 * travels, and a write returns before the device has it. Where the system gives no pinned memory,
 * the driver's way serves. */
#include "backends/cuda/cuda_private.h"

#include <string.h>

/* Long enough to hide a transfer's start (some 10 us, in which PCIe 4 moves 250 KB), short enough
 * that two for each queue do not matter. */
enum { STAGE_BYTES = 4 << 20 };

void oct_cuda_stages_free(struct oct_cuda_queue *queue)
{
    const struct oct_cuda_api *api = &queue->cuda->api;

    for (size_t i = 0; i < OCT_CUDA_STAGES; i++) {
        if (queue->stages[i].event)
            (void)api->cuEventDestroy(queue->stages[i].event);
        if (queue->stages[i].data)
            (void)api->cuMemFreeHost(queue->stages[i].data);
        memset(&queue->stages[i], 0, sizeof queue->stages[i]);
    }
}

static bool have_stages(struct oct_cuda_queue *queue)
{
    const struct oct_cuda_api *api = &queue->cuda->api;

    if (queue->stages[0].data)
        return true;
    for (size_t i = 0; i < OCT_CUDA_STAGES; i++)
        if (api->cuMemAllocHost(&queue->stages[i].data, STAGE_BYTES) != OCT_CUDA_SUCCESS ||
            api->cuEventCreate(&queue->stages[i].event, OCT_CUDA_EVENT_DISABLE_TIMING) !=
                OCT_CUDA_SUCCESS) {
            oct_cuda_stages_free(queue);
            return false;
        }
    return true;
}

/* One piece: into a stage that is free, and on its way. */
static unsigned write_piece(struct oct_cuda_queue *queue, oct_cuda_pointer to, const void *from,
                            size_t bytes)
{
    const struct oct_cuda_api *api = &queue->cuda->api;
    size_t i = queue->next_stage;
    unsigned result = OCT_CUDA_SUCCESS;

    if (queue->stages[i].is_busy)
        result = api->cuEventSynchronize(queue->stages[i].event);
    if (result != OCT_CUDA_SUCCESS)
        return result;
    memcpy(queue->stages[i].data, from, bytes);
    result = api->cuMemcpyHtoDAsync(to, queue->stages[i].data, bytes, queue->stream);
    if (result == OCT_CUDA_SUCCESS)
        result = api->cuEventRecord(queue->stages[i].event, queue->stream);
    queue->stages[i].is_busy = true;
    queue->next_stage = (i + 1) % OCT_CUDA_STAGES;
    return result;
}

enum octet_status oct_cuda_write(void *opaque, oct_device_buffer to, size_t offset,
                                 const void *from, size_t bytes, struct octet_error *err)
{
    struct oct_cuda_queue *queue = opaque;
    const struct oct_cuda_api *api = &queue->cuda->api;
    enum octet_status status = oct_cuda_enter(queue->cuda, err);
    unsigned result = OCT_CUDA_SUCCESS;

    if (status != OCTET_OK)
        return status;
    if (have_stages(queue)) {
        for (size_t done = 0; done < bytes && result == OCT_CUDA_SUCCESS; done += STAGE_BYTES)
            result = write_piece(queue, to + offset + done, (const char *)from + done,
                                 bytes - done < STAGE_BYTES ? bytes - done : STAGE_BYTES);
    } else if (bytes) {
        result = api->cuMemcpyHtoDAsync(to + offset, from, bytes, queue->stream);
        if (result == OCT_CUDA_SUCCESS)
            result = api->cuStreamSynchronize(queue->stream);
    }
    status = oct_cuda_status(queue->cuda, result, err, "writing %zu bytes", bytes);
    oct_cuda_leave(queue->cuda);
    return status;
}

/* A stage may still be on its way to the device: the stream's order keeps the two apart. */
static unsigned read_staged(struct oct_cuda_queue *queue, oct_cuda_pointer from, char *to,
                            size_t bytes)
{
    const struct oct_cuda_api *api = &queue->cuda->api;
    unsigned result = OCT_CUDA_SUCCESS;

    for (size_t asked = 0, taken = 0; taken < bytes && result == OCT_CUDA_SUCCESS;) {
        if (asked < bytes && asked - taken < (size_t)OCT_CUDA_STAGES * STAGE_BYTES) {
            size_t piece = bytes - asked < STAGE_BYTES ? bytes - asked : STAGE_BYTES;
            size_t i = asked / STAGE_BYTES % OCT_CUDA_STAGES;

            result =
                api->cuMemcpyDtoHAsync(queue->stages[i].data, from + asked, piece, queue->stream);
            if (result == OCT_CUDA_SUCCESS)
                result = api->cuEventRecord(queue->stages[i].event, queue->stream);
            asked += piece;
        } else {
            size_t piece = bytes - taken < STAGE_BYTES ? bytes - taken : STAGE_BYTES;
            size_t i = taken / STAGE_BYTES % OCT_CUDA_STAGES;

            result = api->cuEventSynchronize(queue->stages[i].event);
            if (result == OCT_CUDA_SUCCESS)
                memcpy(to + taken, queue->stages[i].data, piece);
            taken += piece;
        }
    }
    return result;
}

enum octet_status oct_cuda_read(void *opaque, oct_device_buffer from, size_t offset, void *to,
                                size_t bytes, struct octet_error *err)
{
    struct oct_cuda_queue *queue = opaque;
    const struct oct_cuda_api *api = &queue->cuda->api;
    enum octet_status status = oct_cuda_enter(queue->cuda, err);
    unsigned result = OCT_CUDA_SUCCESS;

    if (status != OCTET_OK)
        return status;
    if (have_stages(queue)) {
        result = read_staged(queue, from + offset, to, bytes);
    } else {
        if (bytes)
            result = api->cuMemcpyDtoHAsync(to, from + offset, bytes, queue->stream);
        if (result == OCT_CUDA_SUCCESS)
            result = api->cuStreamSynchronize(queue->stream);
    }
    status = oct_cuda_status(queue->cuda, result, err, "reading %zu bytes", bytes);
    oct_cuda_leave(queue->cuda);
    return status;
}
