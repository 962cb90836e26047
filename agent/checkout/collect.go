package checkout

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/agent/sandbox"
	"rouse/internal/gitview"
	"rouse/internal/text"
)

const (
	maxFiles   = 20_000    // changed by a branch
	maxTree    = 2_000_000 // entries of a commit, including all folders
	maxCommits = 1_000     // listed
)

// Commit is a commit of a result.
type Commit struct {
	Hash    string    `json:"hash"`
	Author  string    `json:"author"`
	Time    time.Time `json:"time"`
	Subject string    `json:"subject"`
}

// FileStat is a file that a result changes. Added and Removed are -1 for a binary file.
type FileStat struct {
	Path    string `json:"path"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// Result is the branch of a run in the owner's repository. Its texts come from the agent and must
// be escaped for display.
type Result struct {
	Run    string `json:"run"`
	Repo   string `json:"repo"`
	Target string `json:"target,omitempty"` // see Clone
	Branch string `json:"branch"`
	Base   string `json:"base"`
	// Head is Base if there are no commits. In that case the owner's repository has no branch.
	Head        string     `json:"head"`
	Commits     []Commit   `json:"commits"` // newest first, at most 1,000
	Files       []FileStat `json:"files"`
	Uncommitted int        `json:"uncommitted"` // files that the agent left uncommitted; they stay in the clone
	Notes       []string   `json:"notes,omitempty"`
}

// Collect copies the branch of a clone into the owner's repository. It can be repeated: a branch
// that has the commits stays, and a branch from an earlier Collect of the run moves forward. Other
// branches do not move.
func (s *Store) Collect(ctx context.Context, c Clone) (Result, error) {
	defer s.lock("run " + c.Run)()
	rec, err := s.read(c.Run)
	if err != nil {
		return Result{}, err
	}
	if rec.Applied != nil && rec.Result != nil {
		return *rec.Result, nil // the clone no longer exists
	}
	res, err := s.collect(ctx, &rec)
	if err != nil {
		return Result{}, fmt.Errorf("checkout of run %s: %w", c.Run, err)
	}
	return res, nil
}

func (s *Store) collect(ctx context.Context, rec *record) (Result, error) {
	res := Result{Run: rec.Run, Repo: rec.Repo, Target: rec.Target, Branch: rec.Branch, Base: rec.Base, Notes: slices.Clone(rec.Notes)}
	if err := s.look(ctx, rec.Clone, &res); err != nil {
		return res, err
	}

	quarantine := git{dir: filepath.Join(s.runDir(rec.Run), "quarantine.git")}
	if res.Head != res.Base {
		r, err := openRepository(ctx, rec.Repo, s.scratch())
		if err != nil {
			return res, err
		}
		defer r.close()

		if err := s.receive(ctx, rec.Clone, res.Head, quarantine, r.format); err != nil {
			return res, err
		}
		if err := s.describe(ctx, quarantine, &res); err != nil {
			return res, err
		}
		if err := s.deliver(ctx, r, rec, res.Head, quarantine); err != nil {
			return res, err
		}
	}

	if res.Head == res.Base && len(rec.Heads) > 0 {
		res.Notes = append(res.Notes, "the clone has no commit any more; the branch in "+rec.Repo+" stays as it was brought back before")
	}

	if err := removeAll(quarantine.dir); err != nil {
		return res, err
	}
	rec.Result = &res
	return res, s.write(*rec)
}

// confined runs git in a sandbox that sees the clone and the mirror. Its output is not trusted.
func (s *Store) confined(ctx context.Context, c sandbox.Command, args ...string) error {
	said := &bounded{most: 4 << 10}
	c.Argv, c.Stderr, c.MinTier = append([]string{"git"}, args...), said, s.MinTier
	c.Env = append(gitview.Env(), "PATH="+os.Getenv("PATH"), "HOME="+os.DevNull, "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "GIT_CONFIG_KEY_1=core.fsmonitor", "GIT_CONFIG_VALUE_1=false")
	c.Limits.FileSize = s.maxPack()
	c.Wall = cmp.Or(s.MaxTime, defaultMaxTime)

	ended, err := s.Sandbox.Run(ctx, c)
	switch {
	case err != nil:
		return err
	case ended.KilledBy != "":
		return fmt.Errorf("git in the clone was ended: %s", ended.KilledBy)
	case ended.Exit != 0:
		return &gitError{args, ended.Exit, strings.TrimSpace(text.Clean(said.String()))}
	}
	return nil
}

// inClone runs git in the clone with read-only access.
func (s *Store) inClone(ctx context.Context, c Clone, in io.Reader, out io.Writer, args ...string) error {
	return s.confined(ctx, sandbox.Command{Dir: c.Dir, Read: []string{c.Dir, c.Mirror}, Stdin: in, Stdout: out}, args...)
}

// ask is like inClone, for a short output.
func (s *Store) ask(ctx context.Context, c Clone, args ...string) (string, error) {
	out := &bounded{most: 1 << 20}
	err := s.inClone(ctx, c, nil, out, args...)
	return strings.TrimSpace(out.String()), err
}

var hash = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// look reads the head of the clone's branch, and notes changes outside the branch.
func (s *Store) look(ctx context.Context, c Clone, res *Result) (err error) {
	if res.Head, err = s.ask(ctx, c, "rev-parse", "--verify", "--quiet", "refs/heads/"+c.Branch+"^{commit}"); err != nil {
		return fmt.Errorf("the clone %s has no branch %s that can be read: %w", c.Dir, c.Branch, err)
	}
	if !hash.MatchString(res.Head) || len(res.Head) != len(c.Base) {
		return fmt.Errorf("the branch %s of the clone %s is %q, which is no commit", c.Branch, c.Dir, text.Head(res.Head, 80))
	}

	// The count is optional, so limit its time.
	brief, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	status := &bounded{most: 8 << 20}
	if err := s.inClone(brief, c, nil, status, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all"); err != nil {
		res.Notes = append(res.Notes, "whether files are uncommitted is not known: "+err.Error())
	}
	res.Uncommitted = bytes.Count(status.Bytes(), []byte{0})

	if count, err := s.ask(brief, c, "rev-list", "--count", "HEAD", "--branches", "--not", "refs/heads/"+c.Branch, c.Base, "--remotes"); err == nil {
		if n, err := strconv.Atoi(count); err == nil && n > 0 {
			res.Notes = append(res.Notes, fmt.Sprintf("commits outside of the branch %s stay in the clone: %d", c.Branch, n))
		}
	}
	return nil
}

// receive copies the objects of a commit into the quarantine and checks them.
func (s *Store) receive(ctx context.Context, c Clone, head string, quarantine git, format string) error {
	if err := removeAll(quarantine.dir); err != nil {
		return err
	}
	if err := initBare(ctx, quarantine.dir, format); err != nil {
		return err
	}
	objects := filepath.Join(quarantine.dir, "objects")
	if err := errors.Join(os.MkdirAll(filepath.Join(objects, "info"), 0o700), os.MkdirAll(filepath.Join(objects, "pack"), 0o700),
		os.WriteFile(filepath.Join(objects, "info", "alternates"), []byte(filepath.Join(c.Mirror, "objects")+"\n"), 0o600)); err != nil {
		return err
	}

	if shallow, err := os.ReadFile(filepath.Join(c.Mirror, "shallow")); err == nil { // the owner's repository is shallow
		if err := os.WriteFile(filepath.Join(quarantine.dir, "shallow"), shallow, 0o600); err != nil {
			return err
		}
	}

	known, err := git{dir: c.Mirror}.run(ctx, "for-each-ref", "--format=^%(objectname)")
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(s.runDir(c.Run), "incoming.pack"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		file.Close()
		_ = os.Remove(file.Name())
	}()

	pack := &limited{w: file, left: s.maxPack()}
	revisions := strings.NewReader(head + "\n^" + c.Base + "\n" + known)
	err = s.inClone(ctx, c, revisions, pack, "pack-objects", "--stdout", "--revs", "--thin", "--delta-base-offset", "--quiet")
	if pack.left < 0 {
		return fmt.Errorf("the commits of the branch %s are larger than %d MiB, and are not brought back; they stay in %s", c.Branch, s.maxPack()>>20, c.Dir)
	}
	if err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}

	// The pack comes from the agent. It is read within the limits of a sandbox that can write only
	// packs.
	err = s.confined(ctx, sandbox.Command{Dir: quarantine.dir, Read: []string{quarantine.dir, c.Mirror}, Write: []string{filepath.Join(objects, "pack")}, Stdin: file, Stdout: io.Discard},
		"--git-dir="+quarantine.dir, "-c", "core.bigFileThreshold=32m", "index-pack", "--strict", "--fix-thin", "--stdin", "--max-input-size="+strconv.FormatInt(s.maxPack(), 10))
	if err != nil {
		return fmt.Errorf("the commits of the branch %s are refused: %w", c.Branch, err)
	}
	if _, err := quarantine.run(ctx, "rev-list", "--objects", "--quiet", head, "^"+c.Base); err != nil {
		return fmt.Errorf("the commits of the branch %s are not complete: %w", c.Branch, err)
	}
	if err := s.checkObjects(ctx, quarantine, c, head); err != nil {
		return err
	}
	_, err = quarantine.run(ctx, "update-ref", "refs/heads/result", head)
	return err
}

// checkObjects refuses objects that are small in a pack but large as files. A few kilobytes can
// expand to a file of gigabytes. Nested folders with repeated entries can expand to more files than
// a disk holds.
func (s *Store) checkObjects(ctx context.Context, g git, c Clone, head string) error {
	list, err := g.run(ctx, "rev-list", "--objects", "--no-object-names", head, "^"+c.Base)
	if err != nil {
		return err
	}
	sizes, err := g.runWith(ctx, strings.NewReader(list), "cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)")
	if err != nil {
		return err
	}

	var sum int64
	var trees []string
	for line := range strings.Lines(sizes) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return fmt.Errorf("git cat-file printed %q", text.Head(line, 80))
		}
		n, err := strconv.ParseInt(fields[2], 10, 64)
		if sum += n; err != nil || sum > s.maxPack() {
			return errors.Join(err, fmt.Errorf("the files that the branch %s changes are larger than %d MiB together, and are not brought back; they stay in %s", c.Branch, s.maxPack()>>20, c.Dir))
		}
		if fields[1] == "tree" {
			trees = append(trees, fields[0])
		}
	}

	known, err := g.subtrees(ctx, trees, len(head)/2)
	if err != nil {
		return err
	}
	counted := map[string]int{}
	for _, tree := range trees {
		if known.count(tree, counted) >= maxTree {
			return fmt.Errorf("a commit of the branch %s has more than %d files, and is not brought back; it stays in %s", c.Branch, maxTree, c.Dir)
		}
	}
	return nil
}

// folders maps hashes to trees.
type folders map[string]folder

type folder struct {
	entries int
	below   []string // subtrees, with repetitions
}

// count returns the number of entries of a tree including all subtrees, up to maxTree.
func (f folders) count(tree string, counted map[string]int) int {
	if n, ok := counted[tree]; ok {
		return n
	}
	n := f[tree].entries
	for _, below := range f[tree].below {
		if n += f.count(below, counted); n >= maxTree {
			n = maxTree
			break
		}
	}
	counted[tree] = n
	return n
}

// subtrees reads trees and all their subtrees, each once. size is the length of a hash in bytes.
func (g git) subtrees(ctx context.Context, trees []string, size int) (folders, error) {
	all := folders{}
	for next := trees; len(next) > 0; {
		out, err := g.runWith(ctx, strings.NewReader(strings.Join(next, "\n")+"\n"), "cat-file", "--batch")
		if err != nil {
			return nil, err
		}
		next = nil
		asked := map[string]bool{}
		for out != "" {
			head, rest, _ := strings.Cut(out, "\n") // hash, type and size
			fields := strings.Fields(head)
			if len(fields) != 3 || fields[1] != "tree" {
				return nil, fmt.Errorf("git cat-file printed %q", text.Head(head, 80))
			}
			n, err := strconv.Atoi(fields[2])
			if err != nil || n >= len(rest) {
				return nil, fmt.Errorf("git cat-file printed %q", text.Head(head, 80))
			}
			tree := parseTree(rest[:n], size)
			all[fields[0]], out = tree, rest[n+1:]
			for _, below := range tree.below {
				asked[below] = true
			}
		}
		for below := range asked {
			if _, ok := all[below]; !ok {
				next = append(next, below)
			}
		}
	}
	return all, nil
}

// parseTree parses entries of a mode, a blank, a name, a zero byte and a hash.
func parseTree(raw string, size int) (f folder) {
	for {
		head, rest, ok := strings.Cut(raw, "\x00")
		if !ok || len(rest) < size {
			return f
		}
		f.entries++
		if mode, _, _ := strings.Cut(head, " "); strings.TrimLeft(mode, "0") == "40000" {
			f.below = append(f.below, hex.EncodeToString([]byte(rest[:size])))
		}
		raw = rest[size:]
	}
}

// limited is a writer for a limited number of bytes. left is negative after the limit was exceeded.
type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, errLong
	}
	return l.w.Write(p)
}

// describe lists the commits and files of a result. It returns an error if there are too many
// files.
func (s *Store) describe(ctx context.Context, g git, res *Result) error {
	log, err := g.run(ctx, "log", "-z", "--max-count="+strconv.Itoa(maxCommits), "--format=%H%n%an%n%aI%n%s", res.Base+".."+res.Head)
	if err != nil {
		return err
	}
	for _, entry := range split(log) {
		lines := strings.SplitN(entry, "\n", 4)
		if len(lines) < 4 {
			continue
		}
		at, _ := time.Parse(time.RFC3339, lines[2]) // zero if the agent wrote an invalid date
		res.Commits = append(res.Commits, Commit{lines[0], valid(lines[1]), at, valid(lines[3])})
	}

	raw, err := g.run(ctx, "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", res.Base, res.Head)
	if err != nil {
		return err
	}
	entries := split(raw) // pairs of a description and a path
	if len(entries)/2 > maxFiles {
		return fmt.Errorf("the branch %s changes %d files, more than the %d that are brought back", res.Branch, len(entries)/2, maxFiles)
	}
	for i := 0; i < len(entries); i += 2 {
		if fields := strings.Fields(entries[i]); len(fields) == 5 && fields[1] == "160000" {
			res.Notes = append(res.Notes, "the branch changes submodules; their commits are not brought back")
			break
		}
	}

	stat, err := g.run(ctx, "diff-tree", "-r", "-z", "--numstat", "--no-renames", res.Base, res.Head)
	if err != nil {
		return err
	}
	for _, entry := range split(stat) {
		parts := strings.SplitN(entry, "\t", 3)
		if len(parts) == 3 {
			res.Files = append(res.Files, FileStat{valid(parts[2]), count(parts[0]), count(parts[1])})
		}
	}
	return nil
}

// short returns the abbreviated hash for display.
func short(hash string) string { return hash[:min(len(hash), 12)] }

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func count(number string) int {
	n, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return n
}

// deliver copies the objects from the quarantine into the owner's repository and sets the branch.
func (s *Store) deliver(ctx context.Context, r *repository, rec *record, head string, quarantine git) error {
	now, err := r.ref(ctx, rec.Branch)
	if err != nil {
		return err
	}
	if now != "" && now != head && !slices.Contains(rec.Heads, now) {
		return fmt.Errorf("the branch %s of %s was changed or made by another program (it is at %s), and stays as it is; rename it, and collect again", rec.Branch, r.path, short(now))
	}
	if now != head {
		if err := r.checkNotOut(rec.Branch, "collect"); err != nil {
			return err
		}
	}

	if !slices.Contains(rec.Heads, head) {
		rec.Heads = append(rec.Heads, head)
		if err := s.write(*rec); err != nil {
			return err
		}
	}
	if now == head {
		return nil
	}
	if _, err := r.bareGit().run(ctx, "fetch", "--quiet", "--no-tags", "--update-shallow", "--no-write-fetch-head", "--no-recurse-submodules", "--", quarantine.dir, "refs/heads/result"); err != nil {
		return err
	}
	if now == "" {
		now = strings.Repeat("0", len(head))
	}
	_, err = r.bareGit().run(ctx, "update-ref", "-m", "rouse: run "+rec.Run, "refs/heads/"+rec.Branch, head, now)
	return err
}

// Diff returns the changes of a result as text, at most max bytes of it. Attributes of the branch
// cannot hide changes.
func (s *Store) Diff(ctx context.Context, res Result, max int) (string, error) {
	if res.Head == res.Base {
		return "", nil
	}
	r, err := openRepository(ctx, res.Repo, s.scratch())
	if err != nil {
		return "", err
	}
	defer r.close()

	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	out, said := &bounded{most: max, stop: true}, &bounded{most: 4 << 10}
	c := r.bareGit().command(ctx, "diff-tree", "-r", "-p", "--stat", "--no-color", "--no-ext-diff", "--no-textconv", "--find-renames", "--end-of-options", res.Base, res.Head)
	c.Stdout, c.Stderr = out, said
	switch err := c.Run(); {
	case out.cut:
		return valid(out.String()) + fmt.Sprintf("\n… the diff is longer than %d bytes; all of it: git -C %s diff %s %s\n", max, r.path, short(res.Base), short(res.Head)), nil
	case err != nil:
		return "", fmt.Errorf("checkout of run %s: diff: %w: %s", res.Run, err, text.Clean(said.String()))
	}
	return valid(out.String()), nil
}
