/* The formats of check; see findings.h. Every text may hold anything and is escaped for its place.
 */
#include "findings.h"

#include <string.h>

/* One list: protobuf's value, heading, GitHub's command, colour. Errors come first. */
static const struct severity {
    Octet__V1__Severity value;
    const char *plural, *singular, *command;
    enum colour colour;
} severities[] = {
    {OCTET__V1__SEVERITY__SEVERITY_ERROR, "errors", "error", "error", COLOUR_RED},
    {OCTET__V1__SEVERITY__SEVERITY_WARNING, "warnings", "warning", "warning", COLOUR_YELLOW},
    {OCTET__V1__SEVERITY__SEVERITY_NOTE, "notes", "note", "notice", COLOUR_NONE},
};
enum { SEVERITY_COUNT = sizeof severities / sizeof *severities };

bool finding_fails(const struct findings *findings, const Octet__V1__Finding *finding)
{
    return finding->severity == OCTET__V1__SEVERITY__SEVERITY_ERROR ||
           (findings->strict && finding->severity == OCTET__V1__SEVERITY__SEVERITY_WARNING);
}

size_t findings_failing(const struct findings *findings)
{
    size_t count = 0;

    for (size_t i = 0; i < findings->count; i++)
        count += finding_fails(findings, findings->items[i]);
    return count;
}

static size_t count_of(const struct findings *findings, Octet__V1__Severity severity)
{
    size_t count = 0;

    for (size_t i = 0; i < findings->count; i++)
        count += findings->items[i]->severity == severity;
    return count;
}

/* Lines of a text under each other, indented. */
static void print_indented(struct output *out, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        output_text(out, "      ");
        for (size_t i = 0; i < length; i++)
            output_write(out, (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? "?" : text + i, 1);
        output_text(out, "\n");
        text += length + (text[length] == '\n');
    }
}

static void print_finding(const struct severity *severity, const Octet__V1__Finding *f,
                          struct output *out)
{
    output_printf(out, "  %s%s%s", output_colour(out, severity->colour), f->id,
                  output_colour(out, COLOUR_NONE));
    output_printf(out, "%s%s\n", f->subject[0] ? "  " : "", f->subject);
    print_indented(out, f->message);
    if (f->remedy[0]) {
        output_text(out, output_colour(out, COLOUR_GREEN));
        output_text(out, "    way out:\n");
        output_text(out, output_colour(out, COLOUR_NONE));
        print_indented(out, f->remedy);
    }
}

void findings_print_text(const struct findings *findings, struct output *out)
{
    bool any = false;

    for (size_t s = 0; s < SEVERITY_COUNT; s++) {
        size_t count = count_of(findings, severities[s].value);
        if (!count)
            continue;
        output_printf(out, "%s%s%s\n", output_colour(out, COLOUR_BOLD), severities[s].plural,
                      output_colour(out, COLOUR_NONE));
        for (size_t i = 0; i < findings->count; i++)
            if (findings->items[i]->severity == severities[s].value)
                print_finding(&severities[s], findings->items[i], out);
        output_text(out, "\n");
    }
    for (size_t s = 0; s < SEVERITY_COUNT; s++) {
        size_t count = count_of(findings, severities[s].value);
        if (!count)
            continue;
        output_printf(out, "%s%zu %s", any ? ", " : "", count,
                      count == 1 ? severities[s].singular : severities[s].plural);
        any = true;
    }
    output_printf(out, "%s; %s\n", any ? "" : "nothing to object to", findings->summary);
}

/* Escapes as GitHub's own toolkit does: '%' and line ends everywhere, ':' and ',' in properties
 * too. */
static void print_github(struct output *out, const char *text, bool property)
{
    for (; *text; text++) {
        const char *escape = *text == '%'               ? "%25"
                             : *text == '\r'            ? "%0D"
                             : *text == '\n'            ? "%0A"
                             : property && *text == ':' ? "%3A"
                             : property && *text == ',' ? "%2C"
                                                        : NULL;
        if (escape)
            output_text(out, escape);
        else
            output_write(out, text, 1);
    }
}

void findings_print_github(const struct findings *findings, struct output *out)
{
    for (size_t s = 0; s < SEVERITY_COUNT; s++)
        for (size_t i = 0; i < findings->count; i++) {
            const Octet__V1__Finding *f = findings->items[i];
            if (f->severity != severities[s].value)
                continue;
            output_printf(
                out, "::%s title=", finding_fails(findings, f) ? "error" : severities[s].command);
            print_github(out, "octet ", true);
            print_github(out, f->id, true);
            output_text(out, "::");
            if (f->subject[0]) {
                print_github(out, f->subject, false);
                output_text(out, ": ");
            }
            print_github(out, f->message, false);
            if (f->remedy[0]) {
                print_github(out, "\n", false);
                print_github(out, f->remedy, false);
            }
            output_text(out, "\n");
        }
    output_text(out, "::notice title=octet check::");
    print_github(out, findings->summary, false);
    output_text(out, "\n");
}

/* Escapes for attributes and text alike. XML 1.0 has no way to write most control characters; they
 * become U+FFFD. */
static void print_xml(struct output *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        const char *escape =
            c == '&'    ? "&amp;"
            : c == '<'  ? "&lt;"
            : c == '>'  ? "&gt;"
            : c == '"'  ? "&quot;"
            : c == '\n' ? "&#10;"
            : c == '\r' ? "&#13;"
            : c == '\t' ? "&#9;"
            : c < 0x20  ? "\xef\xbf\xbd"
            : c == 0xef && (unsigned char)text[1] == 0xbf && ((unsigned char)text[2] | 1) == 0xbf
                ? "\xef\xbf\xbd" /* U+FFFE, U+FFFF: no characters of XML */
                : NULL;
        if (escape)
            output_text(out, escape);
        else
            output_write(out, text, 1);
        if (escape && c == 0xef)
            text += 2;
    }
}

static void print_case(const struct findings *findings, const Octet__V1__Finding *f,
                       struct output *out)
{
    bool fails = finding_fails(findings, f);

    output_text(out, "    <testcase classname=\"octet.check\" name=\"");
    print_xml(out, f->id);
    if (f->subject[0]) {
        output_text(out, " ");
        print_xml(out, f->subject);
    }
    output_text(out, "\">\n      ");
    if (fails) {
        output_text(out, "<failure type=\"");
        print_xml(out, f->id);
        output_text(out, "\" message=\"");
        print_xml(out, f->message);
        output_text(out, "\">");
    } else {
        output_text(out, "<system-out>");
        print_xml(out, f->message);
        output_text(out, "\n");
    }
    print_xml(out, f->remedy);
    output_text(out, fails ? "</failure>\n" : "</system-out>\n");
    output_text(out, "    </testcase>\n");
}

void findings_print_junit(const struct findings *findings, struct output *out)
{
    size_t failing = findings_failing(findings), cases = findings->count + 1;

    output_text(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    output_printf(out, "<testsuites tests=\"%zu\" failures=\"%zu\" errors=\"0\">\n", cases,
                  failing);
    output_text(out, "  <testsuite name=\"octet check ");
    print_xml(out, findings->title);
    output_printf(out, "\" tests=\"%zu\" failures=\"%zu\" errors=\"0\" skipped=\"0\">\n", cases,
                  failing);
    for (size_t s = 0; s < SEVERITY_COUNT; s++)
        for (size_t i = 0; i < findings->count; i++)
            if (findings->items[i]->severity == severities[s].value)
                print_case(findings, findings->items[i], out);
    output_text(out, "    <testcase classname=\"octet.check\" name=\"check\">\n      <system-out>");
    print_xml(out, findings->summary);
    output_text(out, "</system-out>\n    </testcase>\n  </testsuite>\n</testsuites>\n");
}
