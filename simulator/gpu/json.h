/* A bounded reader of JSON documents whose numbers are whole: what the state file is (STATE.md). */
#ifndef HEADWORKS_JSON_H
#define HEADWORKS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_kind { JSON_NULL, JSON_BOOLEAN, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* One value. Members of an object and items of an array are chained by `next`. */
struct json {
    enum json_kind kind;
    const char *key;    /* of an object's member, else NULL */
    const char *string; /* of JSON_STRING; ends with a zero byte */
    int64_t number;     /* of JSON_NUMBER; 0 or 1 of JSON_BOOLEAN */
    struct json *first; /* of JSON_ARRAY and JSON_OBJECT */
    struct json *next;
};

struct json_document;

/* Reads a whole document. NULL where it is no JSON, nests too deeply, has a fraction, or memory is short.
 * `text` is taken over and changed (strings are unescaped in it); it must be from malloc and hold length + 1 bytes. */
struct json_document *json_read(char *text, size_t length);
const struct json *json_root(const struct json_document *document);
void json_free(struct json_document *document);

/* The member of that name; NULL where `object` is none, or has none. */
const struct json *json_member(const struct json *object, const char *key);
/* The member's value; `otherwise` where there is none of that kind. */
int64_t json_number(const struct json *object, const char *key, int64_t otherwise);
const char *json_string(const struct json *object, const char *key, const char *otherwise);

#endif
