#include "json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 16

struct json_document {
    char *text;
    struct json *values;
    size_t count, capacity;
    char *at, *end;
};

static struct json *read_value(struct json_document *document, int depth);

static void skip_space(struct json_document *document) {
    while (document->at < document->end && strchr(" \t\r\n", *document->at) != NULL && *document->at != '\0')
        document->at++;
}

static bool take(struct json_document *document, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(document->end - document->at) < length || memcmp(document->at, word, length) != 0)
        return false;
    document->at += length;
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 32) >= 'a' && (c | 32) <= 'f')
        return (c | 32) - 'a' + 10;
    return -1;
}

/* \uXXXX as UTF-8. Surrogates are refused: no name in a state file needs them. */
static char *unescape_code_point(struct json_document *document, char *to) {
    unsigned code = 0;
    if (document->end - document->at < 4)
        return NULL;
    for (int digit = 0; digit < 4; digit++) {
        int value = hex_digit(*document->at++);
        if (value < 0)
            return NULL;
        code = code * 16 + (unsigned)value;
    }
    if (code == 0 || (code >= 0xD800 && code <= 0xDFFF))
        return NULL;
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xC0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3F));
    } else {
        *to++ = (char)(0xE0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3F));
        *to++ = (char)(0x80 | (code & 0x3F));
    }
    return to;
}

/* A string, unescaped in place: it only ever becomes shorter. NULL where it is none. */
static const char *read_string(struct json_document *document) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (!take(document, "\""))
        return NULL;
    char *start = document->at, *to = start;
    while (document->at < document->end) {
        char c = *document->at++;
        if (c == '"') {
            *to = '\0';
            return start;
        }
        if ((unsigned char)c < 0x20)
            return NULL;
        if (c != '\\') {
            *to++ = c;
            continue;
        }
        if (document->at == document->end)
            return NULL;
        c = *document->at++;
        if (c == 'u') {
            if ((to = unescape_code_point(document, to)) == NULL)
                return NULL;
            continue;
        }
        const char *escape = c == '\0' ? NULL : strchr(escapes, c);
        if (escape == NULL)
            return NULL;
        *to++ = meant[escape - escapes];
    }
    return NULL;
}

static bool read_number(struct json_document *document, int64_t *number) {
    bool negative = take(document, "-");
    int64_t value = 0;
    char *start = document->at;
    while (document->at < document->end && *document->at >= '0' && *document->at <= '9') {
        int digit = *document->at++ - '0';
        if (value > (INT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (document->at == start || (*start == '0' && document->at - start > 1))
        return false;
    *number = negative ? -value : value;
    return true;
}

static struct json *new_value(struct json_document *document, enum json_kind kind) {
    /* `values` never moves: json_read made room for all that `text` can hold. */
    if (document->count == document->capacity)
        return NULL;
    struct json *value = &document->values[document->count++];
    *value = (struct json){.kind = kind};
    return value;
}

static bool read_members(struct json_document *document, struct json *parent, char closing, int depth) {
    struct json **link = &parent->first;
    const char end[] = {closing, '\0'};
    skip_space(document);
    if (take(document, end))
        return true;
    for (;;) {
        const char *key = NULL;
        skip_space(document);
        if (parent->kind == JSON_OBJECT) {
            if ((key = read_string(document)) == NULL)
                return false;
            skip_space(document);
            if (!take(document, ":"))
                return false;
        }
        struct json *value = read_value(document, depth + 1);
        if (value == NULL)
            return false;
        value->key = key;
        *link = value;
        link = &value->next;
        skip_space(document);
        if (take(document, end))
            return true;
        if (!take(document, ","))
            return false;
    }
}

static struct json *read_value(struct json_document *document, int depth) {
    struct json *value;
    skip_space(document);
    if (depth > MAX_DEPTH || document->at == document->end)
        return NULL;
    switch (*document->at) {
    case '{':
    case '[': {
        bool object = *document->at++ == '{';
        value = new_value(document, object ? JSON_OBJECT : JSON_ARRAY);
        return value != NULL && read_members(document, value, object ? '}' : ']', depth) ? value : NULL;
    }
    case '"':
        value = new_value(document, JSON_STRING);
        return value != NULL && (value->string = read_string(document)) != NULL ? value : NULL;
    case 't':
    case 'f':
        value = new_value(document, JSON_BOOLEAN);
        if (value == NULL)
            return NULL;
        value->number = *document->at == 't';
        return take(document, value->number ? "true" : "false") ? value : NULL;
    case 'n':
        value = new_value(document, JSON_NULL);
        return value != NULL && take(document, "null") ? value : NULL;
    default:
        value = new_value(document, JSON_NUMBER);
        return value != NULL && read_number(document, &value->number) ? value : NULL;
    }
}

struct json_document *json_read(char *text, size_t length) {
    struct json_document *document = calloc(1, sizeof *document);
    if (document == NULL) {
        free(text);
        return NULL;
    }
    *document = (struct json_document){.text = text, .at = text, .end = text + length, .capacity = 1};
    /* Each value but the first follows one of these, so that this many suffice. */
    for (size_t i = 0; i < length; i++)
        document->capacity += text[i] == ',' || text[i] == '[' || text[i] == '{';
    document->values = calloc(document->capacity, sizeof *document->values);
    if (document->values != NULL && read_value(document, 0) != NULL) {
        skip_space(document);
        if (document->at == document->end)
            return document;
    }
    json_free(document);
    return NULL;
}

const struct json *json_root(const struct json_document *document) { return document->values; }

void json_free(struct json_document *document) {
    free(document->values);
    free(document->text);
    free(document);
}

const struct json *json_member(const struct json *object, const char *key) {
    if (object == NULL || object->kind != JSON_OBJECT)
        return NULL;
    for (const struct json *member = object->first; member != NULL; member = member->next)
        if (strcmp(member->key, key) == 0)
            return member;
    return NULL;
}

int64_t json_number(const struct json *object, const char *key, int64_t otherwise) {
    const struct json *member = json_member(object, key);
    return member != NULL && (member->kind == JSON_NUMBER || member->kind == JSON_BOOLEAN) ? member->number : otherwise;
}

const char *json_string(const struct json *object, const char *key, const char *otherwise) {
    const struct json *member = json_member(object, key);
    return member != NULL && member->kind == JSON_STRING ? member->string : otherwise;
}
