/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real HTTP server on 127.0.0.1, a thread for each connection, that hands tokens out and misbehaves
 * on demand. The n-th token is "tok-n", and n is in its field "n", too: a mixed read would show.
 */
#ifndef TOKEN_SERVER_H
#define TOKEN_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum server_mode {
	SERVER_TOKENS,
	SERVER_STATUS, /* answers STATUS, with BODY */
	SERVER_BODY,   /* answers 200, with BODY */
	SERVER_HALF,   /* says more than it sends */
	SERVER_CLOSE,  /* hangs up without a word */
	SERVER_HANG,   /* until the client goes, or the server ends */
};

struct server {
	atomic_int mode;
	atomic_int status;
	atomic_int delay_ms;
	atomic_bool gated; /* requests wait until it is false again */
	atomic_int expires_in;
	const char *_Atomic body;
	const char *_Atomic retry_after;
	const char *_Atomic fields; /* more members of the answer: ",\"is_gpu\":true" */
	atomic_int requests;        /* that came whole */
	atomic_int waiting;         /* at the gate */
	atomic_int unauthorized;    /* without "Bearer SERVER_KEY" */
	char url[64];
	int port;
	/* its own */
	int fd;
	pthread_t thread;
	atomic_int open;
	atomic_bool ending;
};

#define SERVER_KEY "key-that-nobody-may-ever-see-0123456789"

void server_start(struct server *s);
void server_start_unix(struct server *s, const char *path); /* instead; its URL is then any */
void server_stop(struct server *s);
/* Waits, for at most 20 s, until N requests wait at the gate. */
void server_wait_gate(struct server *s, int n);

#endif
