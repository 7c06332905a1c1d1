/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words that are commands of other programs. Several of Atoll's could be meant, and some decide about
 * work: so none is run, and the nearest is named.
 */
#include "cli/cli.h"

#include <string.h>

static const struct other_word words[] = {
	{ "ps", "list plans", "list" },
	{ "plans", "list plans", "list" },
	{ "info", "see what is pending in a plan", "status" },
	{ "changes", "see what a plan changed", "diff" },
	{ "history", "see what happened", "log" },
	{ "jobs", "see commands in the background", "job" },
	{ "create", "start a plan", "start" },
	{ "new", "start a plan", "start" },
	{ "init", "start a plan", "start" },
	{ "enter", "open a shell in a plan", "shell" },
	{ "attach", "open a shell in a plan", "shell" },
	{ "edit", "find a plan's version of a file", "open" },
	{ "merge", "make a plan's changes real", "commit" },
	{ "accept", "make a plan's changes real", "commit" },
	{ "push", "make a plan's changes real", "commit" },
	{ "save", "make a plan's changes real", "commit" },
	{ "drop", "drop uncommitted changes", "discard" },
	{ "abort", "drop uncommitted changes", "discard" },
	{ "cancel", "drop uncommitted changes", "discard" },
	{ "pull", "bring in what changed outside", "refresh" },
	{ "update", "bring in what changed outside", "refresh" },
	{ "sync", "bring in what changed outside", "refresh" },
	{ "rebase", "bring in what changed outside", "refresh" },
	{ "revert", "take the last commit back", "undo" },
	{ "delete", "end a plan", "rm PLAN" },
	{ "remove", "end a plan", "rm PLAN" },
	{ "end", "end a plan", "rm PLAN" },
	{ "kill", "end a command in the background", "job stop PLAN" },
	{ "gc", "free what is no longer needed", "clean" },
	{ "prune", "free what is no longer needed", "clean" },
};

const struct other_word *other_word_at(size_t i)
{
	return i < sizeof(words) / sizeof(words[0]) ? &words[i] : NULL;
}

const struct other_word *other_word_find(const char *word)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(words[i].word, word) == 0)
			return &words[i];
	return NULL;
}
