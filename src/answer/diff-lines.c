/* SPDX-License-Identifier: Apache-2.0 */
/* A line per change, and what is worth saying of it besides its content. */
#include "answer/diff-view.h"

#include "diff/live-database.h"
#include "util/cleanup.h"
#include "util/escape.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MODE_BITS 07777u

static const struct {
	char letter;
	enum paint paint;
} kinds[] = {
	[ATOLL_CHANGE_ADDED] = { 'A', PAINT_GOOD },
	[ATOLL_CHANGE_CHANGED] = { 'M', PAINT_CHANGED },
	[ATOLL_CHANGE_DELETED] = { 'D', PAINT_BAD },
};
_Static_assert(sizeof(kinds) / sizeof(kinds[0]) == ATOLL_CHANGE_END_, "every kind has a row");

const char *const diff_kind_words[] = {
	[ATOLL_CHANGE_ADDED] = "added",
	[ATOLL_CHANGE_CHANGED] = "changed",
	[ATOLL_CHANGE_DELETED] = "deleted",
};
_Static_assert(sizeof(diff_kind_words) / sizeof(diff_kind_words[0]) == ATOLL_CHANGE_END_,
               "every kind has a word");

static const char *type_word(uint32_t mode)
{
	static const struct {
		uint32_t type;
		const char *word;
	} types[] = {
		{ S_IFREG, "file" },   { S_IFDIR, "directory" }, { S_IFLNK, "link" },
		{ S_IFIFO, "FIFO" },   { S_IFSOCK, "socket" },   { S_IFCHR, "device" },
		{ S_IFBLK, "device" },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if ((mode & S_IFMT) == types[i].type)
			return types[i].word;
	return "entry";
}

/* ---- remarks ---- */

static void say_mode(struct strbuf *sb, const struct atoll_change *c)
{
	if (c->kind == ATOLL_CHANGE_CHANGED)
		strbuf_printf(sb, " %04o -> %04o", c->old_mode & MODE_BITS,
		              c->new_mode & MODE_BITS);
	else
		strbuf_printf(sb, " %04o", (c->new_mode | c->old_mode) & MODE_BITS);
}

static void say_owner(struct strbuf *sb, const struct atoll_change *c)
{
	strbuf_printf(sb, " %u:%u -> %u:%u", c->old_uid, c->old_gid, c->new_uid, c->new_gid);
}

static void say_type(struct strbuf *sb, const struct atoll_change *c)
{
	strbuf_printf(sb, " %s -> %s", type_word(c->old_mode), type_word(c->new_mode));
}

static void say_target(struct strbuf *sb, const struct atoll_change *c)
{
	strbuf_puts(sb, ": ");
	escape_add(sb, c->text, strlen(c->text));
}

static void say_stripped(struct strbuf *sb, const struct atoll_change *c)
{
	strbuf_printf(sb, " %04o: taken off by a commit without --allow setuid",
	              c->new_mode & MODE_BITS);
}

static void say_special(struct strbuf *sb, const struct atoll_change *c)
{
	strbuf_printf(sb, " %s: not committed without --allow special", type_word(c->new_mode));
}

static void say_program(struct strbuf *sb, const struct atoll_change *c)
{
	(void)c;
	strbuf_puts(sb, ": not committed without --allow git-programs");
}

/* With the path of the database, of which the entry may be a part. */
static void say_database(struct strbuf *sb, const struct atoll_change *c)
{
	strbuf_puts(sb, ": give it with --sqlite ");
	escape_add(sb, c->root, strlen(c->root));
	strbuf_putc(sb, '/');
	escape_add(sb, c->path, live_database_stem(c->path));
}

static void say_names(struct strbuf *sb, const struct atoll_change *c)
{
	uint32_t others = c->old_links - c->new_links;

	strbuf_printf(sb, ": %u other %s as it is", others,
	              others == 1 ? "name stays" : "names stay");
}

static void say_conflict(struct strbuf *sb, const struct atoll_change *c)
{
	if (!*c->conflict)
		return;
	strbuf_puts(sb, ": ");
	strbuf_puts(sb, c->conflict); /* paths in it are escaped already */
}

static const struct {
	unsigned bit;
	const char *word;
	void (*more)(struct strbuf *sb, const struct atoll_change *c);
} remarks[] = {
	{ ATOLL_CHANGE_MODE, "mode", say_mode },
	{ ATOLL_CHANGE_OWNER, "owner", say_owner },
	{ ATOLL_CHANGE_XATTR, "attributes", NULL },
	{ ATOLL_CHANGE_MTIME, "mtime", NULL },
	{ ATOLL_CHANGE_TYPE, "type", say_type },
	{ ATOLL_CHANGE_ESCAPING_LINK, "escaping-link", say_target },
	{ ATOLL_CHANGE_SETUID, "setuid", say_stripped },
	{ ATOLL_CHANGE_SPECIAL, "special", say_special },
	{ ATOLL_CHANGE_GIT_PROGRAM, "git would run a program", say_program },
	{ ATOLL_CHANGE_DATABASE, "SQLite database", say_database },
	{ ATOLL_CHANGE_HARD_LINK, "hard link broken", say_names },
	{ ATOLL_CHANGE_CONFLICT, "conflict", say_conflict },
};

/* Of an entry that comes or goes whole only these say something. */
#define WHOLE_BITS                                                                   \
	(ATOLL_CHANGE_ESCAPING_LINK | ATOLL_CHANGE_SETUID | ATOLL_CHANGE_SPECIAL |   \
	 ATOLL_CHANGE_GIT_PROGRAM | ATOLL_CHANGE_DATABASE | ATOLL_CHANGE_HARD_LINK | \
	 ATOLL_CHANGE_CONFLICT)

void diff_remarks(struct strbuf *sb, const struct atoll_change *change, unsigned left_out)
{
	unsigned what = change->what;

	/* Of a file with new content a new mtime says nothing. */
	if (what & ATOLL_CHANGE_CONTENT)
		what &= ~ATOLL_CHANGE_MTIME;
	if (change->kind != ATOLL_CHANGE_CHANGED)
		what &= WHOLE_BITS;
	what &= ~left_out;
	for (size_t i = 0; i < sizeof(remarks) / sizeof(remarks[0]); i++) {
		if (!(what & remarks[i].bit))
			continue;
		strbuf_printf(sb, "%s%s", sb->len ? ", " : "", remarks[i].word);
		if (remarks[i].more)
			remarks[i].more(sb, change);
	}
	if (S_ISLNK(change->new_mode) && *change->text && !(left_out & ATOLL_CHANGE_CONTENT) &&
	    !(what & ATOLL_CHANGE_ESCAPING_LINK)) {
		strbuf_printf(sb, "%slink", sb->len ? ", " : "");
		say_target(sb, change);
	}
	if (*change->detail) {
		strbuf_puts(sb, sb->len ? ", " : "");
		escape_add(sb, change->detail, strlen(change->detail));
	}
}

/* ---- lines ---- */

void diff_path(struct strbuf *sb, const struct atoll_change *change)
{
	uint32_t mode = change->new_mode ? change->new_mode : change->old_mode;

	escape_add(sb, change->root, strlen(change->root));
	if (*change->path)
		strbuf_putc(sb, '/');
	escape_add(sb, change->path, strlen(change->path));
	if (S_ISDIR(mode))
		strbuf_putc(sb, '/');
}

static void put_letter(struct strbuf *sb, const struct diff_view *v, char letter, enum paint paint)
{
	strbuf_printf(sb, "%s%c%s  ", v->paint[paint], letter, v->paint[PAINT_NONE]);
}

/* Modes that git carries in full. */
static bool is_git_mode(uint32_t mode)
{
	return (mode & MODE_BITS) == 0644 || (mode & MODE_BITS) == 0755 || S_ISLNK(mode);
}

/* What the patch beside the line says already. */
static unsigned said_by_patch(const struct atoll_change *change)
{
	uint32_t old_mode = diff_git_mode(change->old_mode);
	uint32_t new_mode = diff_git_mode(change->new_mode);
	unsigned bits = ATOLL_CHANGE_CONTENT;

	if (old_mode && new_mode && is_git_mode(change->old_mode) && is_git_mode(change->new_mode))
		bits |= ATOLL_CHANGE_MODE;
	if (old_mode && new_mode)
		bits |= ATOLL_CHANGE_TYPE;
	return bits;
}

static void line(struct strbuf *sb, const struct diff_view *v, const struct atoll_change *change,
                 const struct strbuf *more, int failed)
{
	put_letter(sb, v, kinds[change->kind].letter, kinds[change->kind].paint);
	diff_path(sb, change);
	if (more->len)
		strbuf_printf(sb, "  (%s)", strbuf_str(more));
	if (failed)
		strbuf_printf(sb, "  (cannot be read: %s)",
		              failed > -4096 ? strerror(-failed) : atoll_code_name(failed));
	strbuf_putc(sb, '\n');
}

void diff_line(struct strbuf *sb, const struct diff_view *v, const struct atoll_change *change,
               int failed)
{
	cleanup_strbuf struct strbuf more = STRBUF_INIT;

	diff_remarks(&more, change, 0);
	line(sb, v, change, &more, failed);
}

/* Beside a patch: only when the patch does not say it all. */
void diff_line_beside(struct strbuf *sb, const struct diff_view *v, const struct diff_job *job)
{
	const struct atoll_change *change = &job->change;
	cleanup_strbuf struct strbuf more = STRBUF_INIT;
	uint32_t mode = change->new_mode ? change->new_mode : change->old_mode;
	bool is_carried = diff_git_mode(mode) != 0 && !job->has_lines && !job->failed;

	if (change->kind == ATOLL_CHANGE_ADDED && is_carried && !is_git_mode(change->new_mode) &&
	    !(change->what & ATOLL_CHANGE_SETUID)) {
		strbuf_puts(&more, "mode");
		say_mode(&more, change);
	}
	diff_remarks(&more, change, is_carried ? said_by_patch(change) : ATOLL_CHANGE_CONTENT);
	if (job->is_cut)
		strbuf_printf(&more, "%snot shown: " DIFF_OMITTED, more.len ? ", " : "");
	if (more.len || !is_carried)
		line(sb, v, change, &more, job->failed);
}

/* ---- conflicts ---- */

static void put_time(struct strbuf *sb, int64_t seconds)
{
	time_t t = (time_t)seconds;
	char text[64] = "";
	struct tm tm;

	if (localtime_r(&t, &tm))
		(void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	strbuf_puts(sb, text);
}

#define SHOWN_LEN   4096u /* bytes of a text that is shown beside the other */
#define SHOWN_LINES 20u

/* One side of a conflict, when it is a short text; of others the size is said. */
static void put_side(struct strbuf *sb, const struct diff_view *v,
                     const struct atoll_change *change, enum atoll_side side)
{
	cleanup_close int fd = FD_NONE;
	char data[SHOWN_LEN + 1];
	struct text t = { .data = data };
	struct stat st;
	ssize_t n;

	if (atoll_change_open(change, side, &fd) < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	while (t.len < sizeof(data) && (n = read(fd, data + t.len, sizeof(data) - t.len)) > 0)
		t.len += (size_t)n;
	if (t.len > SHOWN_LEN || text_is_binary(&t) || text_lines(&t) > SHOWN_LINES)
		return;
	for (size_t at = 0; at < t.len;) {
		const char *end = memchr(data + at, '\n', t.len - at);
		size_t len = end ? (size_t)(end - data) - at : t.len - at;

		strbuf_puts(sb, "     ");
		diff_patch_line(sb, v, '|', data + at, len);
		at += len + 1;
	}
}

/* What is in the resource now. */
static void put_theirs(struct strbuf *sb, const struct atoll_change *change)
{
	cleanup_close int fd = FD_NONE;
	struct stat st;

	strbuf_puts(sb, *change->conflict ? change->conflict : "changed");
	if (atoll_change_open(change, ATOLL_SIDE_OLD, &fd) < 0 || fstat(fd, &st) < 0)
		return;
	if (!S_ISDIR(st.st_mode))
		strbuf_printf(sb, "; %jd bytes", (intmax_t)st.st_size);
	strbuf_puts(sb, S_ISDIR(st.st_mode) ? "; written " : ", written ");
	put_time(sb, (int64_t)st.st_mtim.tv_sec);
}

static void put_ours(struct strbuf *sb, const struct atoll_change *change)
{
	cleanup_strbuf struct strbuf more = STRBUF_INIT;

	/* A directory that is itself as it was. */
	if (change->kind == ATOLL_CHANGE_CHANGED && change->what == ATOLL_CHANGE_CONFLICT)
		strbuf_puts(sb, "changes inside it");
	else
		strbuf_puts(sb, diff_kind_words[change->kind]);
	if (S_ISREG(change->new_mode))
		strbuf_printf(sb, "; %" PRIu64 " bytes", change->new_size);
	diff_remarks(&more, change, ATOLL_CHANGE_CONFLICT);
	if (more.len)
		strbuf_printf(sb, "; %s", strbuf_str(&more));
}

void diff_conflict(struct strbuf *sb, const struct diff_view *v, const struct atoll_change *change)
{
	put_letter(sb, v, 'C', PAINT_BAD);
	diff_path(sb, change);
	strbuf_puts(sb, "\n   ours:   ");
	put_ours(sb, change);
	strbuf_putc(sb, '\n');
	put_side(sb, v, change, ATOLL_SIDE_NEW);
	strbuf_puts(sb, "   theirs: ");
	put_theirs(sb, change);
	strbuf_putc(sb, '\n');
	put_side(sb, v, change, ATOLL_SIDE_OLD);
}
