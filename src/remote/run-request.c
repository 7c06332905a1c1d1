/* SPDX-License-Identifier: Apache-2.0 */
/* What to run, as the daemon reads it (daemon/exec-request.h). */
#include "remote/run.h"

#include "util/cleanup.h"
#include "util/json.h"
#include "util/mem.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* JSON is text: a byte that is none would arrive as another. */
static int check_text(const char *what, const char *text, struct error *err)
{
	if (utf8_valid(text, strlen(text)))
		return 0;
	(void)error_set(err, -ATOLL_E_INVALID, "%s is not valid UTF-8, and cannot be sent", what);
	error_hint(err, "put it in a file of the project, and name that");
	return -ATOLL_E_INVALID;
}

static int check(const struct remote_run *run, struct error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && run->argv[i]; i++)
		r = check_text("an argument of the command", run->argv[i], err);
	for (size_t i = 0; r == 0 && i < run->n_options; i++)
		r = run->options[i].value ? check_text("an option", run->options[i].value, err) : 0;
	return r;
}

/* ---- lists ---- */

static void put_list(struct json *j, const char *key, const char *const *v)
{
	if (!v || !v[0])
		return;
	json_open_array(j, key);
	for (size_t i = 0; v[i]; i++)
		json_string(j, NULL, v[i]);
	json_close(j);
}

/* A bare name hands on what we have; the daemon's own environment is nobody's here. */
static void put_env(struct json *j, const char *given)
{
	const char *value;

	if (strchr(given, '=')) {
		json_string(j, NULL, given);
	} else if ((value = getenv(given)) && utf8_valid(value, strlen(value))) {
		cleanup_free char *text = xasprintf("%s=%s", given, value);

		json_string(j, NULL, text);
	}
}

static void put_options_named(struct json *j, const struct remote_run *run, const char *name)
{
	bool is_env = strcmp(name, "env") == 0;

	json_open_array(j, name);
	if (is_env && run->terminal)
		put_env(j, "TERM");
	for (size_t i = 0; i < run->n_options; i++) {
		if (strcmp(run->options[i].name, name) != 0)
			continue;
		if (is_env)
			put_env(j, run->options[i].value);
		else
			json_string(j, NULL, run->options[i].value);
	}
	json_close(j);
}

static bool is_list(const char *name)
{
	return strcmp(name, "env") == 0 || strcmp(name, "unset") == 0;
}

/* Of those with one value the last counts. */
static void put_options(struct json *j, const struct remote_run *run)
{
	put_options_named(j, run, "env");
	put_options_named(j, run, "unset");
	for (size_t i = 0; i < run->n_options; i++) {
		const char *name = run->options[i].name;
		bool again = is_list(name);

		for (size_t k = i + 1; k < run->n_options; k++)
			again |= strcmp(run->options[k].name, name) == 0;
		if (again)
			continue;
		if (run->options[i].value)
			json_string(j, name, run->options[i].value);
		else
			json_bool(j, name, true);
	}
}

static void put_fence(struct json *j, const struct atoll_fence *f)
{
	static const char *const homes[] = {
		[ATOLL_HOME_SCRATCH] = NULL,
		[ATOLL_HOME_REAL] = "real",
		[ATOLL_HOME_NONE] = "none",
	};

	if (!f)
		return;
	if (homes[f->home])
		json_string(j, "home", homes[f->home]);
	if (f->strict)
		json_bool(j, "strict", true);
	put_list(j, "rw", f->rw);
	put_list(j, "ro", f->ro);
	put_list(j, "hide", f->hide);
	put_list(j, "profile", f->profiles);
}

/* ---- the terminal and the place ---- */

static void put_terminal(struct json *j, const struct remote_run *run)
{
	struct winsize size = { 0 };

	if (!run->terminal)
		return;
	json_bool(j, "terminal", true);
	if (ioctl(run->in_fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
		json_int(j, "rows", size.ws_row);
		json_int(j, "columns", size.ws_col);
	}
}

/* A place in the project is the same place over there; another is taken as it is. */
static char *place_there(const char *cwd, const char *here, const char *there)
{
	size_t n = strlen(here);

	if (!cwd)
		return xstrdup(there);
	if (strncmp(cwd, here, n) == 0 && (cwd[n] == '/' || cwd[n] == '\0'))
		return xasprintf("%s%s", there, cwd + n);
	return xstrdup(cwd);
}

int run_request(const struct remote_run *run, const char *root_here, const char *root_there,
                char **ret_text, struct error *err)
{
	cleanup_free char *cwd = place_there(run->cwd, root_here, root_there);
	cleanup_free char *text = NULL;
	size_t len = 0;
	struct json j;
	FILE *f;
	int r = check(run, err);

	if (r == 0 && !utf8_valid(cwd, strlen(cwd))) {
		r = error_set(err, -ATOLL_E_INVALID,
		              "the working directory is not valid UTF-8, and cannot be sent");
		error_hint(err, "begin at another one, with --cwd or cd");
	}
	if (r < 0)
		return r;
	f = open_memstream(&text, &len);
	if (!f)
		return error_sys(err, -errno, "write", "the request");
	json_init(&j, f);
	json_open_object(&j, NULL);
	put_list(&j, "argv", run->argv);
	json_string(&j, "cwd", cwd);
	/* As far as that machine can: the paths that a command sees, and writes into what it makes, are
	 * those it has here. */
	if (root_here[1] && utf8_valid(root_here, strlen(root_here)))
		json_string(&j, "at", root_here);
	if (run->timeout_ms > 0)
		json_seconds(&j, "timeout", run->timeout_ms);
	put_options(&j, run);
	put_fence(&j, run->fence);
	put_terminal(&j, run);
	json_close(&j);
	json_end(&j);
	if (fclose(f) != 0)
		return error_sys(err, -ENOMEM, "write", "the request");
	if (len > FRAME_MAX) {
		(void)error_set(err, -ATOLL_E_TOO_BIG,
		                "the command's words and variables are too long to be sent");
		error_hint(err, "put them in a file of the project, and name that");
		return -ATOLL_E_TOO_BIG;
	}
	*ret_text = take_ptr(text);
	return 0;
}
