/* SPDX-License-Identifier: Apache-2.0 */
/* What starting a program costs when it does nothing. */
int main(void)
{
	return 0;
}
