/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of libm that SQLite, when it is part of this program, offers to statements. Ours use
 * none; a user's database may, in what is checked or computed when its rows are written. So that the other
 * commands need not load that library, a tenth of the time in which a program starts, it is opened by the
 * first call. Without it there is no right answer, and a wrong one must not get into a database.
 */
#include <dlfcn.h>
#include <gnu/lib-names.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;

static void open_library(void)
{
	library = dlopen(LIBM_SO, RTLD_NOW | RTLD_LOCAL);
}

static void *find(const char *name)
{
	void *found;

	(void)pthread_once(&once, open_library);
	found = library ? dlsym(library, name) : NULL;
	if (found)
		return found;
	(void)fprintf(stderr, "atoll: cannot compute %s(): %s\n", name, dlerror());
	abort();
}

/* ISO C knows no way from a pointer to an object to one to a function; POSIX means this one. */
union call {
	void *found;
	double (*one)(double x);
	double (*two)(double x, double y);
};

#define ONE(name)                                                 \
	double name(double x)                                     \
	{                                                         \
		const union call call = { .found = find(#name) }; \
                                                                  \
		return call.one(x);                               \
	}
#define TWO(name)                                                 \
	double name(double x, double y)                           \
	{                                                         \
		const union call call = { .found = find(#name) }; \
                                                                  \
		return call.two(x, y);                            \
	}

ONE(acos)
ONE(acosh)
ONE(asin)
ONE(asinh)
ONE(atan)
TWO(atan2)
ONE(atanh)
ONE(ceil)
ONE(cos)
ONE(cosh)
ONE(exp)
ONE(floor)
TWO(fmod)
ONE(log)
ONE(log10)
ONE(log2)
TWO(pow)
ONE(sin)
ONE(sinh)
ONE(sqrt)
ONE(tan)
ONE(tanh)
ONE(trunc)
