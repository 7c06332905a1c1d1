/* SPDX-License-Identifier: Apache-2.0 */
/* Names of plans: which are allowed, and how one is made up ("calm-reef-12"). */
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#include "util/random.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static const char *const tempers[] = {
	"amber", "blue", "bold",  "brave", "brisk", "calm",  "clear",  "coral",
	"deep",  "dry",  "early", "fair",  "far",   "fresh", "gentle", "green",
	"high",  "keen", "late",  "light", "long",  "low",   "mild",   "new",
	"open",  "pale", "quiet", "sandy", "still", "swift", "warm",   "wide",
};

static const char *const places[] = {
	"atoll", "bank",  "bar",    "bay",   "beach", "bight", "buoy",   "cape",
	"cay",   "cove",  "creek",  "delta", "dune",  "fjord", "gulf",   "harbor",
	"haven", "inlet", "island", "isle",  "islet", "key",   "lagoon", "marsh",
	"mole",  "palm",  "pier",   "reef",  "shoal", "shore", "sound",  "tide",
};

#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

bool plan_is_id(const char *text)
{
	return strlen(text) == PLAN_ID_LEN && strspn(text, "0123456789abcdef") == PLAN_ID_LEN;
}

bool name_valid(const char *name)
{
	size_t len = strlen(name);

	return len >= 1 && len <= LIMIT_NAME && name[0] != '.' && name[0] != '-' &&
	       strspn(name, NAME_CHARACTERS) == len;
}

bool plan_name_valid(const char *name)
{
	return name_valid(name) && !plan_is_id(name);
}

void plan_name_make_up(char out[LIMIT_NAME + 1])
{
	unsigned char r[4];

	random_bytes(r, sizeof(r));
	(void)snprintf(out, LIMIT_NAME + 1, "%s-%s-%u", tempers[r[0] % COUNT(tempers)],
	               places[r[1] % COUNT(places)], 10u + ((unsigned)r[2] << 8 | r[3]) % 90u);
}
