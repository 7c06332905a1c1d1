/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold-lock LOCKS FILE wait|try: takes the ticket lock FILE in the directory LOCKS as any command
 * would, writes one byte, and holds it until its standard input ends. The one program for tests
 * from outside that is linked with the inside of the library: a lock cannot be held otherwise.
 */
#include "lock/ticket.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"

int main(int argc, char **argv)
{
	struct ticket_options opt = { .command = "hold-lock", .deadline = CLOCK_NEVER };
	struct ticket t = TICKET_INIT;
	char byte = 'h';
	int dir_fd;

	if (argc != 4)
		return 2;
	if (strcmp(argv[3], "try") == 0)
		opt.deadline = 0;
	dir_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0 || ticket_acquire(&t, dir_fd, argv[2], &opt) < 0)
		return 1;
	if (write(1, &byte, 1) != 1)
		return 1;
	(void)close(1);
	while (read(0, &byte, 1) > 0)
		;
	ticket_release(&t);
	return 0;
}
