package checkout

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/agent/sandbox"
	"rouse/internal/atomicfile"
)

// Spec is the resolved `checkout:` section of a job or an agent.
type Spec struct {
	Repo   string        // absolute path of a repository on this machine
	Ref    string        // a branch, tag or commit; empty means the checked-out branch
	Branch string        // new branch
	Agent  string        // default author of commits in the clone
	Keep   time.Duration // see Prune; zero keeps the clone until it is applied or discarded
}

// Store manages the mirrors and clones of a home. It is safe for concurrent use.
type Store struct {
	Dir      string           // HOME/checkouts
	Sandbox  *sandbox.Sandbox // confines git in the clones of agents
	MinTier  sandbox.Tier     // weakest accepted tier; empty means the sandbox's default
	MaxBytes int64            // limit for the disk space of all clones; zero means 10 GiB
	MaxPack  int64            // limit for a clone's commits, both packed and as files; zero means 1 GiB
	MaxTime  time.Duration    // limit for one program in a clone; zero means 10 minutes
	Now      func() time.Time // nil means time.Now

	locks sync.Map // maps names to *sync.Mutex
}

const (
	defaultMaxBytes = 10 << 30
	defaultMaxPack  = 1 << 30
	defaultMaxTime  = 10 * time.Minute
)

// Clone is the repository of a run.
type Clone struct {
	Run    string `json:"run"`
	Dir    string `json:"dir"`    // working folder; only the agent's confined git works in it
	Mirror string `json:"mirror"` // source of borrowed objects, which the sandbox must be able to read
	Repo   string `json:"repo"`
	Ref    string `json:"ref"`
	// Target is the branch that Ref names, which Apply changes. Empty if Ref is a tag or a commit.
	Target string        `json:"target,omitempty"`
	Branch string        `json:"branch"`
	Base   string        `json:"base"` // commit of Ref when the clone was made
	Made   time.Time     `json:"made"`
	Keep   time.Duration `json:"keep,omitempty"`
	Notes  []string      `json:"notes,omitempty"` // content missing from the clone: submodules, Git LFS
}

// record is the content of clone.json.
type record struct {
	Clone
	// Heads are all commits that the branch in the owner's repository has had or was about to get.
	Heads   []string `json:"heads,omitempty"`
	Result  *Result  `json:"result,omitempty"`  // set after Collect
	Pending *Applied `json:"pending,omitempty"` // planned result of a running Apply
	Applied *Applied `json:"applied,omitempty"`
}

// ErrNone is returned if a run has no clone.
var ErrNone = errors.New("the run has no checkout")

var runName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

func (s *Store) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Store) maxBytes() int64 { return cmp.Or(s.MaxBytes, defaultMaxBytes) }
func (s *Store) maxPack() int64  { return cmp.Or(s.MaxPack, defaultMaxPack) }

// lock locks a run, repository or mirror. The caller must call the returned function to unlock it.
func (s *Store) lock(name string) (unlock func()) {
	m, _ := s.locks.LoadOrStore(name, &sync.Mutex{})
	m.(*sync.Mutex).Lock() //nolint:forcetypeassert // nothing else is stored
	return m.(*sync.Mutex).Unlock
}

func (s *Store) scratch() string            { return filepath.Join(s.Dir, "scratch") }
func (s *Store) runDir(run string) string   { return filepath.Join(s.Dir, "runs", run) }
func (s *Store) workDir(run string) string  { return filepath.Join(s.runDir(run), "work") }
func (s *Store) recordOf(run string) string { return filepath.Join(s.runDir(run), "clone.json") }

func (s *Store) read(run string) (record, error) {
	var rec record
	if !runName.MatchString(run) {
		return rec, fmt.Errorf("checkout: %q is not a run", run)
	}
	content, err := os.ReadFile(s.recordOf(run))
	if errors.Is(err, fs.ErrNotExist) {
		return rec, fmt.Errorf("checkout of run %s: %w", run, ErrNone)
	}
	if err == nil {
		err = json.Unmarshal(content, &rec)
	}
	if err != nil {
		return rec, fmt.Errorf("checkout of run %s: %w", run, err)
	}
	// The home may have been moved.
	rec.Dir, rec.Mirror = s.workDir(run), filepath.Join(s.Dir, "mirrors", filepath.Base(rec.Mirror))
	return rec, nil
}

func (s *Store) write(rec record) error { return writeRecord(s.runDir(rec.Run), rec) }

func writeRecord(dir string, rec record) error {
	content, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	step()
	defer step()
	return atomicfile.Write(filepath.Join(dir, "clone.json"), content, 0o600)
}

// step is called between steps that must survive a crash. Tests end the process there.
var step = func() {}

// Open returns the clone of a run, or ErrNone.
func (s *Store) Open(run string) (Clone, error) {
	rec, err := s.read(run)
	return rec.Clone, err
}

// State is the state of the checkout of a run.
type State struct {
	Clone
	Result  *Result  `json:"result,omitempty"`  // nil before Collect
	Applied *Applied `json:"applied,omitempty"` // nil before Apply, which removes the clone
	pending *Applied
}

// State returns the state of the checkout of a run, or ErrNone.
func (s *Store) State(run string) (State, error) {
	rec, err := s.read(run)
	return State{rec.Clone, rec.Result, rec.Applied, rec.Pending}, err
}

// List returns the checkouts of all runs. It returns the readable ones even if there is an error.
func (s *Store) List() (all []State, err error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "runs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var errs []error
	for _, e := range entries {
		if !runName.MatchString(e.Name()) {
			continue
		}
		state, err := s.State(e.Name())
		if err == nil {
			all = append(all, state)
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Make makes the clone of a run or returns the existing one, so that a later attempt continues the
// work. A clone that was incomplete when the daemon stopped is made again.
func (s *Store) Make(ctx context.Context, run string, spec Spec) (Clone, error) {
	if !runName.MatchString(run) {
		return Clone{}, fmt.Errorf("checkout: %q is not a run", run)
	}
	defer s.lock("run " + run)()
	switch c, err := s.Open(run); {
	case err == nil:
		if _, err := os.Lstat(c.Dir); err != nil {
			return Clone{}, fmt.Errorf("checkout: run %s was applied, and its clone is gone; start a new run", run)
		}
		c.unlock()
		return c, nil
	case !errors.Is(err, ErrNone):
		return Clone{}, err
	}

	if err := checkGit(ctx); err != nil {
		return Clone{}, err
	}
	if err := CheckBranch(spec.Branch); err != nil {
		return Clone{}, err
	}
	if err := s.checkSpace(); err != nil {
		return Clone{}, err
	}

	r, err := openRepository(ctx, spec.Repo, s.scratch())
	if err != nil {
		return Clone{}, err
	}
	defer r.close()
	if err := r.checkFree(ctx, spec.Branch); err != nil {
		return Clone{}, err
	}

	defer s.lock("mirror " + r.common)()
	mirror, err := s.mirror(ctx, r)
	if err != nil {
		return Clone{}, err
	}
	c := Clone{Run: run, Dir: s.workDir(run), Mirror: mirror, Repo: r.path, Ref: spec.Ref, Branch: spec.Branch, Keep: spec.Keep, Made: s.now().UTC()}
	if c.Ref == "" {
		if c.Ref = r.head(); c.Ref == "" {
			return Clone{}, fmt.Errorf("checkout: no branch is checked out in %s; name one with `ref:`", r.path)
		}
	}
	if c.Base, c.Target, err = resolve(ctx, mirror, c.Ref); err != nil {
		return Clone{}, fmt.Errorf("checkout of %s: %w", r.path, err)
	}

	return c, s.clone(ctx, &c, spec)
}

// unlock removes lock files left by a git that was killed in an earlier attempt. No process of that
// attempt is still running. If a lock cannot be removed, git reports it.
func (c Clone) unlock() {
	root, err := os.OpenRoot(c.Dir) // the agent's links cannot lead out of the folder
	if err != nil {
		return
	}
	defer root.Close()
	for _, name := range []string{"index", "HEAD", "config", "packed-refs", "refs/stash", "refs/heads/" + c.Branch} {
		_ = root.Remove(".git/" + name + ".lock")
	}
}

// resolve returns the commit of a branch, tag or hash. branch is "" unless ref is a branch.
func resolve(ctx context.Context, mirror, ref string) (commit, branch string, err error) {
	g := git{dir: mirror}
	if strings.HasPrefix(ref, "-") || strings.ContainsAny(ref, "\x00\n: ^~?*[\\") || strings.Contains(ref, "..") || strings.Contains(ref, "@{") {
		return "", "", fmt.Errorf("ref %q is not the name of a branch, a tag or a commit", ref)
	}
	for _, name := range []string{"refs/heads/" + ref, "refs/tags/" + ref} {
		commit, err := g.line(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
		if err == nil && commit != "" && strings.HasPrefix(name, "refs/heads/") {
			return commit, ref, nil
		}
		if err != nil || commit != "" {
			return commit, "", err
		}
	}

	if _, err := hex.DecodeString(ref + strings.Repeat("0", len(ref)%2)); err == nil && len(ref) >= 7 {
		commit, err := g.line(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
		if err != nil {
			return "", "", err
		}
		if commit != "" {
			holds, err := g.line(ctx, "for-each-ref", "--count=1", "--contains", commit, "--format=%(refname)")
			if holds != "" || err != nil {
				return commit, "", err
			}
		}
	}
	return "", "", fmt.Errorf("there is no branch, no tag and no commit %s that a branch or a tag reaches", ref)
}

// clone makes the clone in a temporary folder and renames it when it is complete.
func (s *Store) clone(ctx context.Context, c *Clone, spec Spec) error {
	making := s.runDir(".making-" + c.Run)
	if err := errors.Join(removeAll(making), removeAll(s.runDir(c.Run))); err != nil {
		return err
	}
	if err := os.MkdirAll(making, 0o700); err != nil {
		return err
	}

	author := cmp.Or(spec.Agent, "rouse")
	work := filepath.Join(making, "work")
	// This is the only place where the host's git works in the clone, before the agent gets it.
	if _, err := (git{}).run(ctx, "clone", "--quiet", "--shared", "--no-checkout", "--template=", "--config", "user.name="+author, "--config", "user.email="+mailName(author)+"@rouse.invalid",
		"--config", "gc.auto=0", "--config", "maintenance.auto=false", "--", c.Mirror, work); err != nil {
		return err
	}
	g := git{dir: filepath.Join(work, ".git"), work: work}
	if _, err := g.run(ctx, "checkout", "--quiet", "--no-track", "-b", c.Branch, c.Base); err != nil {
		return err
	}

	// A relative path to the mirror stays valid if the home is moved.
	objects := filepath.Join(c.Dir, ".git", "objects")
	borrowed, err := filepath.Rel(objects, filepath.Join(c.Mirror, "objects"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, ".git", "objects", "info", "alternates"), []byte(filepath.ToSlash(borrowed)+"\n"), 0o600); err != nil {
		return err
	}

	c.Notes = leftOut(work)
	if err := writeRecord(making, record{Clone: *c}); err != nil {
		return err
	}
	defer step()
	return atomicfile.Rename(making, s.runDir(c.Run))
}

// leftOut describes the content that a clone lacks.
func leftOut(work string) (notes []string) {
	if _, err := os.Lstat(filepath.Join(work, ".gitmodules")); err == nil {
		notes = append(notes, "submodules are not fetched: their folders are empty")
	}
	if content, err := os.ReadFile(filepath.Join(work, ".gitattributes")); err == nil && strings.Contains(string(content), "filter=lfs") {
		notes = append(notes, "files of Git LFS are not fetched: the clone has their pointers")
	}
	return notes
}

// mailName returns the local part of an email address.
func mailName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, name)
}

// mirror updates and returns the mirror of a repository. The caller must hold the lock of the
// mirror until the clone is made. Otherwise objects that the clone needs could be removed.
func (s *Store) mirror(ctx context.Context, r *repository) (string, error) {
	sum := sha256.Sum256([]byte(r.common))
	name := strings.TrimSuffix(filepath.Base(r.path), ".git") + "-" + hex.EncodeToString(sum[:6]) + ".git"
	dir := filepath.Join(s.Dir, "mirrors", name)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		making := filepath.Join(s.Dir, "mirrors", ".making-"+name)
		if err := os.RemoveAll(making); err != nil {
			return "", err
		}
		if err := os.MkdirAll(filepath.Dir(making), 0o700); err != nil {
			return "", err
		}
		if err := initBare(ctx, making, r.format); err != nil {
			return "", err
		}
		if err := atomicfile.Rename(making, dir); err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}

	if err := removeLocks(dir); err != nil {
		return "", err
	}
	g := git{dir: dir}
	before, err := g.refs(ctx)
	if err != nil {
		return "", err
	}
	// Write the mark before the fetch, so that dropped objects are swept even after a crash.
	mark := filepath.Join(dir, "rouse-dropped")
	_, err = os.Lstat(mark)
	dropped := err == nil
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return "", err
	}
	_, err = g.run(ctx, "fetch", "--quiet", "--prune", "--no-tags", "--force", "--update-shallow", "--no-write-fetch-head", "--no-recurse-submodules", "--", r.view, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
	if err != nil {
		return "", fmt.Errorf("checkout: mirror of %s: %w", r.path, err)
	}
	for name, hash := range before {
		if dropped {
			break
		}
		if dropped, err = g.dropped(ctx, name, hash); err != nil {
			return "", err
		}
	}
	if dropped {
		swept, err := s.sweep(ctx, g)
		if err != nil || !swept {
			return dir, err
		}
	}
	return dir, os.Remove(mark)
}

// dropped reports whether the former commit of a reference is no longer reachable from a branch or
// tag.
func (g git) dropped(ctx context.Context, name, hash string) (bool, error) {
	now, err := g.line(ctx, "rev-parse", "--verify", "--quiet", name)
	if err != nil || now == hash {
		return false, err
	}
	holds, err := g.line(ctx, "for-each-ref", "--count=1", "--contains", hash, "--format=%(refname)")
	return holds == "", err
}

// sweep removes unreachable objects of a mirror, unless a clone borrows from it. It reports whether
// it did.
func (s *Store) sweep(ctx context.Context, g git) (bool, error) {
	all, err := s.List()
	if err != nil || slices.ContainsFunc(all, func(c State) bool { return c.Mirror == g.dir && c.Applied == nil }) {
		return false, err
	}
	for _, args := range [][]string{{"repack", "-a", "-d", "-q"}, {"prune-packed", "-q"}, {"prune", "--expire=now"}} {
		if _, err := g.run(ctx, args...); err != nil {
			return false, err
		}
	}
	return true, nil
}

// refs maps all branches and tags to their objects.
func (g git) refs(ctx context.Context) (map[string]string, error) {
	out, err := g.run(ctx, "for-each-ref", "--format=%(refname) %(objectname)")
	refs := map[string]string{}
	for line := range strings.Lines(out) {
		if name, hash, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			refs[name] = hash
		}
	}
	return refs, err
}

// initBare creates an empty bare repository.
func initBare(ctx context.Context, dir, format string) error {
	args := []string{"init", "--quiet", "--bare", "--template="}
	if format != "" {
		args = append(args, "--object-format="+format)
	}
	_, err := git{}.run(ctx, append(args, "--", dir)...)
	return err
}

// removeLocks removes the lock files of a git that was killed in one of rouse's repositories.
func removeLocks(dir string) error {
	for _, place := range []string{"refs", "packed-refs.lock", "shallow.lock", "config.lock", "HEAD.lock"} {
		err := filepath.WalkDir(filepath.Join(dir, place), func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && strings.HasSuffix(path, ".lock") {
				err = os.Remove(path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
