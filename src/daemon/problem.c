/* SPDX-License-Identifier: Apache-2.0 */
/* Problem documents. */
#include "daemon/problem.h"

#include "answer/answer.h"

#include <microhttpd.h>
#include <stdio.h>
#include <string.h>

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

void problem_of_error(struct problem *p, unsigned status, const struct error *err)
{
	*p = (struct problem){
		.status = status ? status : (unsigned)error_code_http(err->code),
		.code = err->code,
		.detail = or_empty(err->msg),
		.hint = or_empty(err->hint),
		.op = or_empty(err->op),
		.path = or_empty(err->path),
		.cause = or_empty(err->detail),
		.os_errno = err->os_errno,
	};
}

void problem_of_result(struct problem *p, int code, const struct atoll_result *res)
{
	*p = (struct problem){
		.status = (unsigned)error_code_http(code),
		.code = code,
		.detail = atoll_result_message(res),
		.hint = atoll_result_hint(res),
		.op = atoll_result_cause_op(res),
		.path = atoll_result_cause_path(res),
		.cause = atoll_result_cause_detail(res),
		.os_errno = atoll_result_cause_errno(res),
		.res = res,
	};
}

void problem_write(struct json *j, const struct problem *p)
{
	problem_write_as(j, NULL, p);
}

void problem_write_as(struct json *j, const char *key, const struct problem *p)
{
	char type[64];

	(void)snprintf(type, sizeof(type), "urn:atoll:error:%s", error_code_name(p->code));
	json_open_object(j, key);
	json_string(j, "type", type);
	json_string(j, "title", MHD_get_reason_phrase_for(p->status));
	json_uint(j, "status", p->status);
	json_string(j, "detail", p->detail);
	json_string(j, "instance", p->instance);
	json_string(j, "code", error_code_name(p->code));
	json_string(j, "hint", p->hint);
	answer_cause(j, p->op, p->path, p->os_errno, p->cause);
	if (p->res)
		answer_participants(j, p->res);
	if (p->session)
		json_string(j, "session", p->session);
	json_close(j);
}
