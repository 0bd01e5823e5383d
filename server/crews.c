/* See crews.h. */
#include "crews.h"

#include <stdlib.h>

#include "thread_name.h"

enum octet_status crews_start(struct crews *crews, const char *kernels, int32_t cpus,
                              int32_t threads, int32_t lanes, struct octet_error *err)
{
    size_t count = threads <= 1 ? 0 : cpus < 2 * threads ? 1 : (size_t)(cpus / threads);
    enum octet_status status = OCTET_OK;

    *crews = (struct crews){.idle = calloc(count + 1, sizeof *crews->idle),
                            .busy_max = lanes > threads ? lanes : threads,
                            .threads = threads};
    if (!crews->idle || uv_mutex_init(&crews->lock) != 0) {
        free(crews->idle);
        crews->idle = NULL;
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    }
    char name[16] = "";
    (void)prctl(PR_GET_NAME, name);
    thread_name("octet-crew"); /* the new threads take it over */
    while (status == OCTET_OK && crews->idle_count < count) {
        octet_workers *crew;
        status = octet_workers_create(kernels, threads, &crew, err);
        if (status == OCTET_OK)
            crews->idle[crews->idle_count++] = crew;
    }
    thread_name(name);
    return status;
}

octet_workers *crews_begin(struct crews *crews, bool is_large)
{
    octet_workers *crew = NULL;

    uv_mutex_lock(&crews->lock);
    if (is_large && crews->idle_count && crews->busy + crews->threads <= crews->busy_max)
        crew = crews->idle[--crews->idle_count];
    crews->busy += crew ? crews->threads : 1;
    uv_mutex_unlock(&crews->lock);
    return crew;
}

void crews_end(struct crews *crews, octet_workers *crew)
{
    uv_mutex_lock(&crews->lock);
    crews->busy -= crew ? crews->threads : 1;
    if (crew)
        crews->idle[crews->idle_count++] = crew;
    uv_mutex_unlock(&crews->lock);
}

void crews_stop(struct crews *crews)
{
    if (!crews->idle)
        return;
    for (size_t i = 0; i < crews->idle_count; i++)
        octet_workers_destroy(crews->idle[i]);
    uv_mutex_destroy(&crews->lock);
    free(crews->idle);
    crews->idle = NULL;
}
