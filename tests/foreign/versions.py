# SPDX-License-Identifier: Apache-2.0
"""Version control."""

from row import Row

GIT = '''
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
'''
GIT_BEGIN = GIT + '''
git init -q -b main .; mkdir src; for i in 1 2 3 4; do seq $i 20 >src/f$i; done; echo readme >README; git add .; git commit -qm one; echo two >>README; git commit -qam two; git gc -q
'''
# The index notes inodes and times; packs are made by several threads.
GIT_VARYING = '.git/index .git/worktrees/*/index .git/objects/pack/* .git/objects/info/* */.git/index */.git/objects/pack/* work*/.git .git/modules/*/index .git/sequencer/*'

ROWS = [
    Row('git', 'git', short=True, begin=GIT_BEGIN, varying=GIT_VARYING, script=GIT + '''
git checkout -qb side; git rm -q src/f1; git mv README READ; sed -i s/^7$/seven/ src/f2; git add -A; git commit -qm side; git status --short; echo loose >>src/f3; git stash -q; git checkout -q main
echo main >>src/f4; git commit -qam main; git merge -q --no-edit side; git stash pop -q; git diff --stat; git log --oneline --graph | cat; git tag -a -m t v1; git describe; git rebase -q side 2>&1 | wc -l
git bisect start HEAD HEAD~1 2>/dev/null | wc -l; git bisect reset 2>/dev/null; git reset -q --hard v1; git clean -fdq; git fsck --no-dangling; git notes add -m n; git config --local user.x y; git merge nothing
''', status=1),
    Row('git-remote', 'git', splits=True, begin=GIT_BEGIN, varying=GIT_VARYING, script=GIT + '''
git clone -q --bare --no-hardlinks . bare.git; git remote add origin $PWD/bare.git; echo x >new; git add new; git commit -qm new; git push -q -u origin main; git clone -q --no-local bare.git copy; git -C copy log --oneline
git clone -q --depth 1 file://$PWD/bare.git shallow; git -C shallow log --oneline | wc -l; git fetch -q; git worktree add -q work2 -b w2; echo y >work2/y; git -C work2 add y; git -C work2 commit -qm y; git worktree list | wc -l
git bundle create -q b.bundle main; git bundle verify -q b.bundle; git archive main | tar -tf - | sort; git format-patch -q -1; git am -q 0001-new.patch 2>/dev/null || git am --abort; git worktree remove --force work2
git pull -q --rebase; git submodule add -q ./bare.git sub 2>/dev/null || echo $?; git -c protocol.file.allow=always submodule --quiet add file://$PWD/bare.git sub; git commit -qm sub; git submodule status | cut -c42-
'''),
    # An ordinary user's clone copies, or, where it insists on links, fails: docs/caveats.md.
    Row('git-clone-links', 'git', users='root', splits=True, begin=GIT_BEGIN, varying=GIT_VARYING, script=GIT + '''
git clone -q . ../work/copy; git -C copy log --oneline; git -C copy fsck; git clone -q --local --bare . bare.git; git -C bare.git rev-parse HEAD; git clone -q -s . shared; git -C shared status --short
'''),
    Row('git-move', 'git', short=True, begin=GIT_BEGIN, varying=GIT_VARYING, script=GIT + '''
git mv src lib; mkdir d; git mv lib d/; git commit -qm moved; git mv d/lib e; git commit -qm again; git checkout -q HEAD~2; ls; git checkout -q main; ls e; git gc -q --auto; git pack-refs --all; git status --short
'''),
    Row('git-upkeep', 'git', begin=GIT_BEGIN, varying=GIT_VARYING, script=GIT + '''
for i in 1 2 3 4 5; do git branch b$i; done; git pack-refs --all; git branch -D -q b3; git repack -adq; git prune; git reflog expire --expire=now --all; git gc -q --prune=now; git count-objects
git commit-graph write --no-progress; git multi-pack-index write --no-progress; git maintenance run --quiet --task=gc; git for-each-ref | wc -l; git fsck; git rev-parse b4
'''),
    Row('mercurial', 'mercurial', splits=True, begin='hg init -q .; mkdir d; seq 9 >d/f; echo a >a; hg add -q; hg commit -q -u me -d "0 0" -m one', script='''
export HGUSER=me HGRCPATH=; hg mv -q d/f d/g; echo more >>a; hg commit -d '1 0' -m two; hg branch -q b; hg rm a; hg commit -d '2 0' -m three; hg up -q default; echo x >new; hg add new; hg commit -qd '3 0' -m four
hg merge -q b; hg commit -d '4 0' -m merge; hg log -G -T '{rev} {node|short} {desc}'; hg clone -q . ../work/copy; hg -R copy tip -T '{rev}'; hg verify -q; hg bundle -q -a b.hg; hg status; hg update nothing
''', status=255, varying='*/fncache .hg/dirstate .hg/cache/* copy/.hg/dirstate copy/.hg/cache/* .hg/undo* copy/.hg/undo* .hg/store/undo* copy/.hg/store/undo* b.hg'),
    Row('subversion', 'subversion', script='''
svnadmin create repo; svn co -q file://$PWD/repo wc; cd wc; mkdir trunk; seq 5 >trunk/f; svn add -q trunk; svn ci -q -m one; svn cp -q trunk branch; svn mv -q trunk/f trunk/g; echo x >>branch/f; svn st; svn ci -q -m two; svn up -q
svn diff -c2 | grep -c ^+; svn log -q -v | grep -o ' /.*'; echo y >>trunk/g; svn revert -q trunk/g; svn ps -q svn:executable yes trunk/g; svn ci -qm three; cd ..; svnadmin dump -q repo | grep -c Node-path; svnadmin verify -q repo; svn up nothing/x
''', status=1, varying='repo/* wc/.svn/wc.db wc/.svn/wc.db-journal'),
    Row('fossil', 'fossil', script='''
export USER=me FOSSIL_HOME=$PWD/fossil FOSSIL_USER=me; mkdir fossil wc; fossil init -A me f.fossil >/dev/null; cd wc; fossil open ../f.fossil >/dev/null 2>&1; seq 5 >f; fossil add f; fossil commit -m one --no-warnings 2>&1 | wc -l; echo x >>f; fossil changes
fossil mv --hard f g; fossil commit -m two --no-warnings 2>&1 | wc -l; fossil timeline -n 5 -t ci 2>&1 | wc -l; fossil undo 2>&1 | wc -l; fossil close; cd ..; rm -r fossil
''', varying='f.fossil wc/.fslckout'),
]
