/* Files of checkpoints: names, locks, and replacing an old checkpoint by a new one.
 *
 * Decision: a checkpoint is what its manifest says, and the manifest is renamed into place last.
 * Before that the tensor file lies there under a name of its own, made from its content; what no
 * manifest names is removed when a save is done. A short lock of the folder keeps one process from
 * removing what another is about to name. */
#ifndef OCTET_TRAIN_CHECKPOINT_FILES_H
#define OCTET_TRAIN_CHECKPOINT_FILES_H

#include <stdbool.h>

#include "octet/arena.h"

/* Letters, digits, '.', '_' and '-', not beginning with '.', 1 to 128 of them.
 * Errors: INVALID_ARGUMENT "name". */
enum octet_status oct_checkpoint_name_check(const char *name,
                                            struct octet_error *err) OCTET_MUST_CHECK;

/* Holds a lock until the descriptor is closed; folders without locks do without. -1: errno. */
int oct_folder_lock(const char *directory, bool exclusive);
void oct_folder_unlock(int fd);

/* A new file beside the others of `name`, for writing; *path in the arena. Its lock tells that it
 * is in use. Errors: as oct_file_fail. */
enum octet_status oct_temporary_create(const char *directory, const char *name, octet_arena *arena,
                                       int *fd, const char **path,
                                       struct octet_error *err) OCTET_MUST_CHECK;

/* Puts the tensor file (a temporary) and then the manifest into place, and removes what was in use
 * before. Errors: as oct_file_fail. */
enum octet_status oct_checkpoint_replace(const char *directory, const char *name,
                                         const char *temporary, const char *file,
                                         const char *manifest, size_t length, octet_arena *arena,
                                         struct octet_error *err) OCTET_MUST_CHECK;

/* A whole file in the arena. Errors: NOT_FOUND when there is none; as oct_file_fail. */
enum octet_status oct_file_read(const char *path, size_t bytes_max, octet_arena *arena,
                                const char **text, size_t *length,
                                struct octet_error *err) OCTET_MUST_CHECK;

#endif
