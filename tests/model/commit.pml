/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit protocol of docs/design/commit-protocol.md, as built in src/txn/: commit, revocation, undo,
 * redo and recovery, with a kill or a power cut after every step, also in recovery, and somebody else who
 * changes the resources meanwhile. spin looks at every run there is.
 *
 * Participants:
 *   0   a directory: one entry that is replaced, nobody is kept out
 *   G   a repository: one value that is replaced, under a lock of its own that outlives us
 *   db  a database that can promise, and not go back; in half of the runs
 *
 * G is also a file that somebody may put another one in the place of while nobody is at work, an SQLite
 * file, say: what we did to it is then neither there nor anything that could be taken back.
 *
 * What is on disk and what only in memory are apart. Name changes of one participant reach the disk in
 * their order, at any time, those of different ones in any order; contents of files at any time. A kill
 * leaves memory, a power cut the disk.
 *
 * Each name X of the list in model.py, given as -DX, leaves out or displaces one step: then one of the
 * assertions must fail. They are the test of this file.
 */

#define G      1
#ifndef DEATHS
#define DEATHS 3
#endif

/* What the registry says of the batch; states of batch, plan and sandboxes change together. */
#define NONE      0
#define PREPARING 1
#define DECIDED   2
#define COMMITTED 3
#define REVOKED   4
#define WITHDRAWN 5
#define UNDOING   6
#define REDOING   7
#define UNDONE    8

/* Where the two versions of an entry are. */
#define WORK     0 /* new: workspace, original: target */
#define STAGED   1 /* new: slot,      original: target */
#define PLACED   2 /* new: target,    original: slot */
#define RELEASED 3 /* new: target,    original: nowhere */
#define DROPPED  4 /* new: nowhere,   original: target */
#define is_new(at) (at == PLACED || at == RELEASED)

/* of the database */
#define DB_NONE      0
#define DB_PROMISED  1
#define DB_COMMITTED 2
#define DB_GONE      3

/* In memory, and (d_) on disk. */
byte reg, d_reg;
bit rel, d_rel;        /* that undo data is released */
byte at[2], d_at[2];
bit installed, d_installed; /* the record of participant 0 that undo compares with */
bit foreign, d_foreign;     /* somebody replaced the original of participant 0 in its place */
bit theirs, d_theirs;       /* somebody wrote to what participant 0 installed */
bit lock, d_lock;           /* of G */
bit done, d_done, undone, d_undone; /* G's marks */
byte built, d_built;        /* somebody's work: 1 on G's old value, 2 on its new one */
bit whole[2], d_whole[2];   /* contents of the new entries */
bit man[2], d_man[2];       /* manifests, of which the decision has the hashes */
bit keep, d_keep;           /* what an undo leaves alone */
byte db;                    /* what the server said it has on disk */
bit has_db;

/* What is not on any disk. */
byte deaths;
bit failed;        /* one permanent failure in a run is enough */
bit bad;           /* the step at hand did */
bit recovering;
bit kept;          /* the foreign entry is under conflicts/ */
bit told_yes, told_no, told_undone;
bit keep_asked;
bit last;          /* power cut: there was */
bit undo_may;      /* an undo is about to be asked for: nobody touches 0 any more */
bit swapped;       /* another file is in the place of G; on disk at once, which is the worst */
bit back;          /* something was taken back */
bit turn;          /* the database was asked to commit, by this process */
bit lost;          /* it did, and its answer never came */

/* ---- the disk ---- */

inline reach_0() { d_step { d_at[0] = at[0]; d_installed = installed; d_foreign = foreign; d_theirs = theirs } }
inline reach_G() { d_step { d_at[G] = at[G]; d_lock = lock; d_done = done; d_undone = undone; d_built = built } }

/* The kernel writes when it likes. */
inline perhaps_0() { if :: reach_0() :: skip fi }
inline perhaps_G() { if :: reach_G() :: skip fi }

inline lose_contents()
{
	if :: whole[0] && !d_whole[0] -> whole[0] = 0 :: d_whole[0] = whole[0] fi;
	if :: whole[1] && !d_whole[1] -> whole[1] = 0 :: d_whole[1] = whole[1] fi;
	if :: man[0] && !d_man[0] -> man[0] = 0 :: d_man[0] = man[0] fi;
	if :: man[1] && !d_man[1] -> man[1] = 0 :: d_man[1] = man[1] fi;
	if :: keep = d_keep :: d_keep = keep fi
}

inline power_cut()
{
	reg = d_reg; rel = d_rel;
	at[0] = d_at[0]; installed = d_installed; foreign = d_foreign; theirs = d_theirs;
	at[G] = d_at[G]; lock = d_lock; done = d_done; undone = d_undone; built = d_built;
	/* Nobody waits for the lock alone to be on disk. */
	if :: at[G] < PLACED -> lock = 0 :: skip fi;
	lose_contents()
}

/* The end of a process, or of the machine. */
#define DIE if :: deaths < DEATHS -> goto died :: skip fi

/* ---- the steps ---- */

inline barrier()
{
	atomic {
		reach_0(); reach_G();
		d_whole[0] = whole[0]; d_whole[1] = whole[1];
		d_man[0] = man[0]; d_man[1] = man[1]; d_keep = keep
	}
}

/* One transaction of the registry: it can be on disk before it is known to be. */
inline record(state)
{
	atomic { reg = state; if :: d_reg = reg :: skip fi };
	DIE;
#ifndef NO_REGISTRY_SYNC
	d_reg = reg; d_rel = rel;
#endif
	DIE
}

inline record_released()
{
	atomic { rel = 1; if :: d_rel = rel :: skip fi };
	DIE;
	d_reg = reg; d_rel = rel;
	DIE
}

/* Once in a run something fails for good, an immutable file, say. */
#define MAY_FAIL      if :: !failed && !recovering -> failed = 1; bad = 1 :: skip fi
#define OR_ELSE(what) if :: bad -> bad = 0; goto what :: else fi

inline put_0()
{
	if :: at[0] == WORK -> atomic { at[0] = STAGED; perhaps_0() } :: else fi;
	DIE;
	MAY_FAIL;
	if
	:: !bad && at[0] == STAGED -> atomic { at[0] = PLACED; perhaps_0() }
	:: else
	fi;
	DIE;
#ifndef NO_LOOK_AT_DISPLACED
	/* What was displaced is not what was seen before. */
	if
	:: !bad && foreign && !recovering -> failed = 1; bad = 1
	:: foreign && recovering && !kept -> kept = 1
	:: else
	fi;
#endif
	if :: !bad -> atomic { installed = 1; perhaps_0() } :: else fi;
	DIE
}

inline put_G()
{
	if
	:: swapped -> bad = 1
	:: !swapped && done -> skip
	:: else ->
		atomic { lock = 1; undone = 0; perhaps_G() };
		DIE;
		MAY_FAIL;
		/* Neither the old nor the new value: somebody came in before we had the lock again. */
		if :: built == 1 && at[G] < PLACED -> bad = 1 :: else fi;
		if
		:: !bad -> atomic {
			assert(built == 0); /* nobody's work is torn away */
			at[G] = PLACED; perhaps_G() }
		:: else
		fi;
		DIE;
#ifndef NO_MARK
		if :: !bad -> atomic { done = 1; perhaps_G() } :: else fi;
		DIE
#endif
	fi
}

inline back_G()
{
	if
	:: undone || swapped -> skip
	:: else ->
		atomic { lock = 1; done = 0; perhaps_G() };
		DIE;
		MAY_FAIL;
		if
		:: !bad && at[G] == PLACED -> atomic {
			assert(built != 2); at[G] = STAGED; perhaps_G() }
		:: else
		fi;
		DIE;
#ifndef NO_MARK
		if :: !bad -> atomic { undone = 1; perhaps_G() } :: else fi;
		DIE
#endif
	fi
}

inline back_0()
{
	MAY_FAIL;
	if
	:: !bad && at[0] == PLACED && !keep -> atomic { at[0] = STAGED; perhaps_0() }
	:: else
	fi;
	DIE
}

inline unlock()
{
	atomic { lock = 0; perhaps_G() };
	DIE
}

inline abort_db()
{
	if :: db == DB_PROMISED || db == DB_NONE -> db = DB_GONE :: else fi;
	DIE
}

inline commit_db()
{
	if
	:: has_db ->
		/* B2: what the others did is on disk before anything final is done. */
#ifndef NO_BARRIER_2
		barrier();
		DIE;
#endif
		turn = 1;
		MAY_FAIL; /* refused, or out of reach */
		if
		:: bad -> skip
#ifndef COMMIT_WHAT_WAS_LET_GO
		:: !bad && db == DB_GONE && recovering -> bad = 1
#else
		:: !bad && db == DB_GONE && recovering -> skip
#endif
		:: else ->
			assert(db == DB_PROMISED || db == DB_COMMITTED);
			db = DB_COMMITTED;
			DIE;
			if :: !failed && !recovering -> failed = 1; lost = 1; bad = 1 :: skip fi
		fi
	:: else
	fi;
	DIE
}

/* Slots are emptied: what is not in its place goes. */
inline release_0()
{
	atomic {
		if
		:: at[0] == PLACED && !keep ->
#ifndef NO_LOOK_AT_DISPLACED
			if :: foreign -> kept = 1 :: else fi;
#endif
			assert(!foreign || kept); /* nobody's version is dropped */
			at[0] = RELEASED
		:: at[0] == STAGED -> at[0] = DROPPED
		:: else
		fi;
		perhaps_0()
	};
	DIE
}

inline release_G()
{
	atomic {
		if
		:: swapped -> skip
		:: !swapped && at[G] == PLACED -> at[G] = RELEASED
		:: !swapped && at[G] == STAGED -> at[G] = DROPPED
		:: else
		fi;
		perhaps_G()
	};
	DIE
}

inline verify() { assert(man[0] && man[1] && whole[0] && whole[1]) }

/* ---- who decides, and who recovers ---- */

active proctype atoll()
{
	if :: has_db = 1 :: has_db = 0; db = DB_GONE fi;

	/* P */
	record(PREPARING);
	atomic { lock = 1; perhaps_G() };
	whole[0] = 1; whole[1] = 1; man[0] = 1; man[1] = 1;
	DIE;
	if :: has_db -> db = DB_PROMISED :: else fi;
	DIE;
	MAY_FAIL; OR_ELSE(withdraw);
#ifdef APPLY_BEFORE_DECISION
	put_0(); OR_ELSE(withdraw);
#endif
#ifdef DECIDE_BEFORE_BARRIER
	record(DECIDED);
#endif
	/* B1 */
#ifndef NO_BARRIER_1
	barrier();
#endif
	DIE;
	/* R */
	if
	:: foreign || built -> goto withdraw
	:: else
	fi;
	/* D */
#ifndef DECIDE_BEFORE_BARRIER
	record(DECIDED);
#endif
#ifdef TELL_EARLY
	told_yes = 1;
#endif
#ifdef FINAL_FIRST
	commit_db();
#endif
	/* A */
	put_0(); OR_ELSE(revoke);
	put_G(); OR_ELSE(revoke);
#ifdef UNLOCK_EARLY
	unlock();
#endif
	MAY_FAIL; OR_ELSE(revoke); /* one that comes after them */
#ifdef RELEASE_EARLY
	release_0();
#endif
	commit_db(); OR_ELSE(revoke);
	/* U, B3, F */
	unlock();
#ifndef NO_BARRIER_3
	barrier();
#endif
	DIE;
	record(COMMITTED);
	told_yes = 1;
	DIE;
	goto settled;

withdraw:
	abort_db();
	unlock();
	record(WITHDRAWN);
	told_no = 1;
	DIE;
	goto settled;

revoke:
	/* Whatever fails in A can be taken back: nothing final was done, but for what did not answer, which
	 * is asked. */
	assert(db != DB_COMMITTED || lost);
#ifndef NO_ASKING
	if
	:: turn && db == DB_COMMITTED -> goto in_doubt
	:: turn && db != DB_COMMITTED -> abort_db()
	:: else
	fi;
#endif
#ifndef NO_REVOKED
	record(REVOKED);
#endif
take_back:
	back = 1;
	abort_db();
	back_G(); OR_ELSE(in_doubt);
	back_0(); OR_ELSE(in_doubt);
	if :: at[G] == STAGED -> atomic { at[G] = WORK; perhaps_G() } :: else fi;
	DIE;
	if :: at[0] == STAGED -> atomic { at[0] = WORK; perhaps_0() } :: else fi;
	DIE;
	unlock();
#ifndef NO_BARRIER_REVOKE
	barrier();
#endif
	DIE;
	record(WITHDRAWN);
	if :: !recovering -> told_no = 1 :: else fi;
	DIE;
	release_0();
	release_G();
	goto settled;

undo:
	/* P: everything is as we left it, or the caller wants that to stay. */
	atomic { lock = 1; perhaps_G() };
	DIE;
	if :: built -> goto leave :: else fi;
	assert(installed && whole[0] && whole[1]); /* what was promised can be undone */
	/* What an earlier attempt wanted to leave does not count. */
	if :: theirs -> keep = 1; keep_asked = 1 :: else -> keep = 0; keep_asked = 0 fi;
	DIE;
#ifndef NO_BARRIER_UNDO_1
	barrier();
#endif
	DIE;
	/* D */
#ifndef NO_UNDOING
	record(UNDOING);
#endif
	/* A */
	back_G(); OR_ELSE(redo);
	back_0(); OR_ELSE(redo);
finish_undo:
	unlock();
#ifndef NO_BARRIER_UNDO
	barrier();
#endif
	DIE;
	record(UNDONE);
	if :: !recovering -> told_undone = 1 :: else fi;
	record_released();
	release_G();
	release_0();
	goto settled;

redo:
#ifndef NO_REDOING
	record(REDOING);
#endif
carry_out_again:
	recovering = 1;
	put_0(); OR_ELSE(in_doubt);
	put_G(); OR_ELSE(in_doubt);
	unlock();
#ifndef NO_BARRIER_REDO
	barrier();
#endif
	DIE;
	record(COMMITTED);
	goto settled;

in_doubt:
	/* Nobody is told anything but that recovery is needed. */
	failed = 1;
	goto recover;

leave:
	unlock();
	goto settled;

died:
	atomic {
		deaths++;
		if :: power_cut() :: skip fi;
		if :: reg == DECIDED -> swapped = !swapped :: skip fi
	};
recover:
	recovering = 1;
	bad = 0; turn = 0;
	if
	:: reg == PREPARING || reg == DECIDED || reg == REVOKED || reg == UNDOING || reg == REDOING ->
		/* A write of our own first: what we go by is on disk from here on. */
#ifndef NO_ANNOUNCE
		d_reg = reg; d_rel = rel;
		DIE
#endif
	:: else
	fi;
	if
	:: reg == NONE -> goto settled
	:: reg == PREPARING -> abort_db(); unlock(); record(WITHDRAWN)
	:: reg == DECIDED ->
		/* What made somebody go back, an immutable file, say, would hold us up half-way. */
		assert(!back);
		verify();
		put_0(); OR_ELSE(refused);
		put_G(); OR_ELSE(refused);
		commit_db(); OR_ELSE(refused);
		unlock();
#ifndef NO_BARRIER_3
		barrier();
#endif
		DIE;
		record(COMMITTED)
	:: reg == REVOKED -> verify(); goto take_back
	:: reg == UNDOING -> verify(); back_G(); OR_ELSE(in_doubt); back_0(); OR_ELSE(in_doubt); goto finish_undo
	:: reg == REDOING -> verify(); goto carry_out_again
	:: else -> goto settled
	fi;
	goto settled;

refused:
	/* The one way back of a recovery. Who cannot go back is asked before it is recorded, and lets go;
	 * if it was committed all stay, until somebody mends what stands in the way. */
#ifndef NO_ASKING_IN_RECOVERY
	if
	:: has_db && db == DB_COMMITTED -> goto stuck
	:: has_db && db != DB_COMMITTED -> abort_db()
	:: else
	fi;
#endif
	record(REVOKED);
	goto take_back;

stuck:
	assert(swapped && is_new(at[0]) && !told_yes && !told_no);
	if
	:: swapped = 0; goto recover
	:: goto end
	fi;

settled:
	recovering = 0;
	if
	:: reg == COMMITTED && !rel && !told_undone && !has_db && !foreign && deaths < DEATHS ->
		undo_may = 1;
		goto undo
	:: reg == COMMITTED && !rel ->
		record_released();
		release_0();
		release_G()
	:: skip
	fi;

	/* A last power cut, after which there is nothing left to do, or it is done. */
	if
	:: !last -> atomic { last = 1; power_cut() }; goto recover
	:: skip
	fi;
	atomic {
		assert(reg == WITHDRAWN || reg == COMMITTED || reg == UNDONE || reg == NONE);
		if
		:: reg == COMMITTED ->
			assert(is_new(at[0]) && is_new(at[G]) && !swapped);
			assert(whole[0] && whole[1]);
			assert(!has_db || db == DB_COMMITTED);
			assert(rel || (at[0] == PLACED && at[G] == PLACED)) /* originals are there */
		:: else ->
			assert(db != DB_COMMITTED);
			assert(!is_new(at[G]) || swapped);
			assert(!is_new(at[0]) || keep_asked);
			assert(reg != UNDONE || !keep_asked || at[0] == PLACED);
			/* The work is kept unless it was undone. */
			assert(reg == UNDONE || (at[0] != DROPPED && at[G] != DROPPED))
		fi;
		assert(!told_yes || reg == COMMITTED || reg == UNDONE);
		assert(!told_no || reg == WITHDRAWN);
		assert(!told_undone || reg == UNDONE);
		assert(!foreign || kept || at[0] != RELEASED)
	};
end:
	skip
}

/* Somebody else, who knows nothing of plans: each thing once, at any time. */
active proctype other()
{
	do
	:: atomic { !foreign && !is_new(at[0]) && reg < COMMITTED -> foreign = 1; perhaps_0() }
	:: atomic { !theirs && at[0] == PLACED && reg == COMMITTED && !undo_may ->
		theirs = 1; perhaps_0() }
	:: atomic { !lock && built == 0 ->
		built = (is_new(at[G]) -> 2 : 1); perhaps_G() }
	:: break
	od
}
