// SPDX-License-Identifier: Apache-2.0
//
// The same as consumer.c, as somebody would write it in C++11: handles that free themselves, and
// callbacks that are lambdas.
//
// usage: consumer EMPTY-DIRECTORY
#include <atoll.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// `struct atoll`, for the C library has a function of that name.
struct closer {
	void operator()(struct atoll *a) const { atoll_close(a); }
	void operator()(atoll_plan *p) const { atoll_plan_free(p); }
	void operator()(atoll_result *r) const { atoll_result_free(r); }
};
template <typename T> using handle = std::unique_ptr<T, closer>;

static void demand(bool ok, const std::string &what, const handle<atoll_result> &res)
{
	if (!ok)
		throw std::runtime_error(what + ": " + atoll_code_name(atoll_result_code(res.get())) +
		                         " " + atoll_result_message(res.get()));
}

static std::string content(const std::string &dir)
{
	std::ifstream f(dir + "/file");
	std::string line;
	std::getline(f, line);
	return line;
}

static bool both(const std::vector<std::string> &dirs, const char *text)
{
	return content(dirs[0]) == text && content(dirs[1]) == text;
}

static void run(const std::string &top)
{
	handle<atoll_result> res(atoll_result_new());
	const std::vector<std::string> dirs = { top + "/0", top + "/1" };
	struct atoll *opened = nullptr;
	atoll_plan *started = nullptr;

	for (const auto &dir : dirs)
		std::ofstream(dir + "/file") << "old\n";
	demand(atoll_open((top + "/store").c_str(), &opened, res.get()) == 0, "open", res);
	handle<struct atoll> store(opened);
	demand(atoll_plan_start(opened, "consumer", 0, &started, res.get()) == 0, "start", res);
	handle<atoll_plan> plan(started);

	for (const auto &dir : dirs) {
		atoll_resource resource = atoll_resource();
		resource.root = dir.c_str();
		demand(atoll_plan_add(plan.get(), &resource, res.get()) == 0, "add", res);
	}
	const char *argv[] = { "sh", "-c", "for d; do echo new >\"$d/file\"; done", "sh",
		               dirs[0].c_str(), dirs[1].c_str(), nullptr };
	atoll_exec command = atoll_exec();
	atoll_exec_status status = atoll_exec_status();
	command.argv = argv;
	demand(atoll_plan_exec(plan.get(), &command, &status, res.get()) == 0, "exec", res);
	demand(status.exit_code == 0 && both(dirs, "old"), "nothing changed yet", res);

	std::vector<std::string> changed;
	const atoll_change_fn note = [](void *user, const atoll_change *change) {
		static_cast<std::vector<std::string> *>(user)->push_back(change->path);
		return 0;
	};
	demand(atoll_plan_diff(plan.get(), note, &changed, res.get()) == 2, "diff", res);
	demand(changed == std::vector<std::string>(2, "file"), "the changes of diff", res);
	demand(atoll_plan_commit(plan.get(), 0, res.get()) == 0, "commit", res);
	demand(both(dirs, "new"), "both changed", res);
	demand(atoll_plan_rollback(plan.get(), 0, res.get()) == 0, "rollback", res);
	demand(both(dirs, "old"), "both as before", res);
	demand(atoll_plan_stop(plan.get(), 0, res.get()) == 0, "stop", res);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	try {
		run(argv[1]);
	} catch (const std::exception &e) {
		std::cerr << "consumer: " << e.what() << '\n';
		return EXIT_FAILURE;
	}
	std::cout << "consumer: atoll " << atoll_version() << " works\n";
	return EXIT_SUCCESS;
}
