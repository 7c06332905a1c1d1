/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the state tables for docs/design/sandbox-states.md; test-state compares the two. */
#include "registry/state.h"

#include <stdlib.h>

int main(void)
{
	state_print_markdown(stdout);
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
