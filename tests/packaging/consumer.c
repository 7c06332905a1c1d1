/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of somebody else's: the installed header and library, C99 and nothing of the project.
 * Two directories go through start, add, exec, diff, commit and rollback in a store of their own.
 *
 * usage: consumer EMPTY-DIRECTORY
 */
#include <atoll.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void demand(int ok, const char *what, const struct atoll_result *res)
{
	if (ok)
		return;
	fprintf(stderr, "consumer: %s: %s %s\n", what, atoll_code_name(atoll_result_code(res)),
	        atoll_result_message(res));
	exit(EXIT_FAILURE);
}

static void write_file(const char *dir, const char *text)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/file", dir);
	f = fopen(path, "w");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0) {
		perror(path);
		exit(EXIT_FAILURE);
	}
}

static int holds(const char *dir, const char *text)
{
	char path[4096], line[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), "%s/file", dir);
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	return strcmp(line, text) == 0;
}

static int count_change(void *user, const struct atoll_change *change)
{
	if (change->kind == ATOLL_CHANGE_CHANGED && strcmp(change->path, "file") == 0)
		++*(int *)user;
	return 0;
}

/* Every step with what must be true after it. */
static void run(struct atoll_plan *plan, char dirs[2][4096], struct atoll_result *res)
{
	const char *argv[] = { "sh", "-c", "for d; do echo new >\"$d/file\"; done", "sh", NULL,
		               NULL, NULL };
	struct atoll_exec_status status;
	struct atoll_exec command;
	int i, changes = 0;

	memset(&command, 0, sizeof(command));
	for (i = 0; i < 2; i++) {
		struct atoll_resource resource;

		memset(&resource, 0, sizeof(resource));
		resource.root = dirs[i];
		demand(atoll_plan_add(plan, &resource, res) == 0, "add", res);
		argv[4 + i] = dirs[i];
	}
	command.argv = argv;
	demand(atoll_plan_exec(plan, &command, &status, res) == 0, "exec", res);
	demand(status.exit_code == 0, "the command's exit status", res);
	demand(holds(dirs[0], "old\n") && holds(dirs[1], "old\n"), "nothing changed yet", res);

	demand(atoll_plan_diff(plan, count_change, &changes, res) == 2, "diff", res);
	demand(changes == 2, "the changes of diff", res);
	demand(atoll_plan_commit(plan, 0, res) == 0, "commit", res);
	demand(atoll_result_participants(res) == 2, "a row for each", res);
	demand(holds(dirs[0], "new\n") && holds(dirs[1], "new\n"), "both changed", res);
	demand(atoll_plan_rollback(plan, 0, res) == 0, "rollback", res);
	demand(holds(dirs[0], "old\n") && holds(dirs[1], "old\n"), "both as before", res);
	demand(atoll_plan_stop(plan, 0, res) == 0, "stop", res);
}

int main(int argc, char **argv)
{
	struct atoll_result *res = atoll_result_new();
	char home[4096], dirs[2][4096];
	struct atoll_plan *plan = NULL;
	struct atoll *a = NULL;
	int i;

	if (argc != 2)
		return 2;
	snprintf(home, sizeof(home), "%s/store", argv[1]);
	for (i = 0; i < 2; i++) {
		snprintf(dirs[i], sizeof(dirs[i]), "%.3000s/%d", argv[1], i);
		write_file(dirs[i], "old\n");
	}
	demand(atoll_open(home, &a, res) == 0, "open", res);
	demand(atoll_plan_start(a, "consumer", 0, &plan, res) == 0, "start", res);
	run(plan, dirs, res);
	demand(atoll_plan_find(a, "nobody", &plan, res) == -ATOLL_E_NOT_FOUND, "find nobody", res);
	demand(atoll_result_message(res)[0] != '\0', "a message", res);
	atoll_plan_free(plan);
	atoll_close(a);
	atoll_result_free(res);
	printf("consumer: atoll %s works\n", atoll_version());
	return EXIT_SUCCESS;
}
