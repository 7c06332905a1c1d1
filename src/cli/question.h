/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions on a terminal. The answer is one of a table's words, alone on a line: what was typed before
 * the question was shown, and what a terminal reports by itself, is no answer.
 */
#ifndef CLI_QUESTION_H
#define CLI_QUESTION_H

#include <stdbool.h>
#include <stddef.h>

/* There is a terminal to ask at: standard input and standard error are one. */
bool question_possible(void);
/* The modes that the terminal has now are those of every question from here on: called before a command
 * that may change them. */
void question_remember_terminal(void);

/* In each table a letter and the whole word are rows of their own. */
struct question_answer {
	const char *word; /* lower case; NULL ends the table */
	int value;        /* >= 0 */
};
struct question {
	const char *above; /* shown before it the first time, or NULL */
	const char *text;
	const char *choices; /* said when the line is no answer */
	const struct question_answer *answers;
};

/* The value of LINE, in any case and with blanks around it, or -1. */
int question_match(const struct question_answer *answers, const char *line);
/*
 * Asks until there is an answer: its value. -1: the input has ended, or a signal came (interrupt.h), which is held.
 * Stopped, it asks again when it goes on.
 *
 * Input is dropped until the terminal was quiet for QUESTION_QUIET_MS twice; then the question is shown. Until it is
 * answered each byte comes here at once, so that the escape character distinguishes a report of the terminal from
 * keys, and a report edits nothing. The modes are then as before; killed by SIGKILL, this process leaves the terminal without echo.
 */
#define QUESTION_QUIET_MS 100
int question_ask(const struct question *q);

#endif
