package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"rouse/internal/dial"
)

// Source says where a skill comes from.
type Source struct {
	// From is a folder, an archive (zip, tar, tar.gz), or the URL of a git repository.
	From string
	// Path of the skill within it, with slashes; "" if there is only one.
	Path string
	// Revision of a repository: a branch, a tag or a commit; "" for its HEAD.
	Revision string
}

// watchEvery is how often it is looked at how much git has received.
const watchEvery = 20 * time.Millisecond

// repositoryURL tells the URL of a repository from a path: it has a scheme, or is user@host:path.
var repositoryURL = regexp.MustCompile(`^(https|ssh|git|file)://|^[\w.-]+@[\w.-]+:`)

// Remote says whether a source is a repository.
func (s Source) Remote() bool { return repositoryURL.MatchString(s.From) }

// Fetch stages the skill of a source below root, the directory of skills that it is to be installed
// in. The caller has to close the result.
func Fetch(ctx context.Context, root string, s Source) (*Staged, error) {
	at := Staged{Pinned: Pinned{Source: s.From, Revision: s.Revision}}
	if s.Path != "" {
		var err error
		if at.Path, err = cleanPath(path.Clean(filepath.ToSlash(s.Path))); err != nil {
			return nil, err
		}
	}

	if s.Remote() {
		return fetchRepository(ctx, root, at)
	}
	if s.Revision != "" {
		return nil, fmt.Errorf("%s is no repository, so it has no revision %q", s.From, s.Revision)
	}
	if strings.Contains(s.From, "://") {
		return nil, fmt.Errorf("%s is neither a file here nor a repository that git reaches by https, ssh, git or file", s.From)
	}

	abs, err := filepath.Abs(s.From)
	if err != nil {
		return nil, err
	}

	at.Source = abs
	info, err := os.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("%s is neither a folder, an archive nor the URL of a repository: %w", s.From, errors.Unwrap(err))
	}

	if info.IsDir() {
		from, err := os.OpenRoot(abs)
		if err != nil {
			return nil, err
		}
		defer from.Close()
		return stage(ctx, root, fromFolder(from), at)
	}

	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is neither a folder nor a file", s.From)
	}

	f, err := os.Open(abs)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	all, err := fromArchive(f)
	if err != nil {
		return nil, err
	}

	return stage(ctx, root, all, at)
}

// fetchRepository fetches one revision of a repository, as an archive made by git: no file is checked
// out, so that no links, hooks or filters of the repository take effect.
func fetchRepository(ctx context.Context, root string, at Staged) (_ *Staged, err error) {
	dir, err := makeStaging(root)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	want, err := revisionOf(at.Revision)
	if err != nil {
		return nil, err
	}
	if _, err := runGit(ctx, dir, "init", "--quiet", "--bare", "--template="); err != nil {
		return nil, err
	}

	address, err := resolveRepository(ctx, at.Source)
	if err != nil {
		return nil, err
	}
	got := "FETCH_HEAD"
	watched, end := watch(ctx, dir, at.Source)
	defer end()
	// A server may refuse to send a commit by its hash. Then all branches and tags are fetched.
	if _, err := runGit(watched, dir, "fetch", "--quiet", "--depth", "1", "--no-tags", "--", address, want); err != nil {
		if _, again := runGit(watched, dir, "fetch", "--quiet", "--tags", "--", address, "+refs/heads/*:refs/heads/*"); again != nil {
			return nil, cmp.Or(context.Cause(watched), err)
		}
		got = want
	}
	if folderSize(dir) > maxFetch { // it was faster than the watch
		return nil, tooMuch(at.Source)
	}

	commit, err := runGit(ctx, dir, "rev-parse", "--verify", "--end-of-options", got+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("the repository %s has no revision %q", at.Source, want)
	}

	at.Commit = strings.TrimSpace(commit)
	archiving, stop := context.WithCancel(ctx)
	defer stop()
	cmd := gitCommand(archiving, dir, "archive", "--format=tar", at.Commit)
	cmd.Env = append(cmd.Env, "GIT_CONFIG_GLOBAL="+os.DevNull) // a stranger's attributes name no filter of the owner's
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}

	staged, err := stage(ctx, root, fromTar(out), at)
	if err != nil { // git still waits to write the rest, of any size
		stop()
	}
	_, drained := io.Copy(io.Discard, out)
	if failed := errors.Join(drained, cmd.Wait()); failed != nil && err == nil {
		return nil, errors.Join(fmt.Errorf("git archive: %w: %s", failed, strings.TrimSpace(stderr.String())), staged.Close())
	}

	return staged, err
}

// watch returns a context that ends once a folder holds more than git may receive. The caller must call end.
func watch(ctx context.Context, dir, source string) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for tick := time.NewTicker(watchEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				if folderSize(dir) > maxFetch {
					cancel(tooMuch(source))
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

func tooMuch(source string) error {
	return fmt.Errorf("git has received more than %d MiB from %s and was stopped; clone the repository yourself, and install from the skill's folder in it", maxFetch>>20, source)
}

func folderSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // git has renamed or removed it
		}
		if info, err := e.Info(); err == nil && !e.IsDir() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// Latest is the commit that a revision of a repository is now; "" if the revision is itself a commit.
func Latest(ctx context.Context, url, revision string) (string, error) {
	want, err := revisionOf(revision)
	if err != nil {
		return "", err
	}
	address, err := resolveRepository(ctx, url)
	if err != nil {
		return "", err
	}
	out, err := runGit(ctx, "", "ls-remote", "--", address, want)
	if err != nil {
		return "", err
	}

	commit, _, ok := strings.Cut(out, "\t")
	if !ok {
		return "", nil // not a branch or tag: a commit, which never changes
	}

	return commit, nil
}

// revisionOf returns the revision that git is asked for. It refuses a text that git would read as an option.
func revisionOf(written string) (string, error) {
	if strings.HasPrefix(written, "-") {
		return "", fmt.Errorf("%q is no revision", written)
	}
	return cmp.Or(written, "HEAD"), nil
}

// gitCommand is git on the bare repository in dir, or on none. It never prompts, runs nothing of a
// repository, and uses known protocols only. The owner's settings hold: how to reach a server is theirs.
// Those of the folder in which rouse was started do not: an agent may have written them.
func gitCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "protocol.ext.allow=never", "-c", "http.followRedirects=false", "-c", "transfer.bundleURI=false", "-c", "safe.bareRepository=explicit", "-c", "fetch.unpackLimit=1", "-c", "fetch.recurseSubmodules=false", "-c", "gc.auto=0", "-c", "core.bigFileThreshold=16m"}, args...)...)
	endGroup(cmd)
	cmd.WaitDelay = 5 * time.Second
	repository := dir
	if dir == "" {
		dir, repository = os.TempDir(), filepath.Join(os.DevNull, "none") // where nothing is found, nor looked for
	}

	cmd.Dir = dir
	// rouse may have been started where git was told of another repository, as in a hook of it.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(setting string) bool {
		name, _, _ := strings.Cut(setting, "=")
		return slices.Contains([]string{"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_CONFIG"}, name)
	})
	cmd.Env = append(cmd.Env, "GIT_DIR="+repository, "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=https:ssh:git:file", "GIT_SSH_COMMAND=ssh -oBatchMode=yes", "GIT_LFS_SKIP_SMUDGE=1", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOC_LIMIT=256m", "LC_ALL=C") // the limit is of one object that git has to hold
	return cmd
}

// Settings returns the files from which git takes settings when it fetches, and those of its usual places that do not exist yet.
func Settings(ctx context.Context) ([]string, error) {
	out, err := runGit(ctx, "", "config", "--list", "--show-origin", "--name-only", "--includes", "-z")
	if err != nil {
		return nil, err
	}

	var files []string
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".gitconfig"), filepath.Join(cmp.Or(os.Getenv("XDG_CONFIG_HOME"), filepath.Join(home, ".config")), "git", "config"))
	}
	for origin := range strings.SplitSeq(out, "\x00") { // and names, which are in no such form
		if file, ok := strings.CutPrefix(origin, "file:"); ok && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files, nil
}

func runGit(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := gitCommand(ctx, dir, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("git is needed to install from a repository, and is not there; install it, or download an archive")
	case err != nil && ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(stderr.String()))
	}

	return string(out), nil
}

const (
	// resolveWithin bounds the requests that find the address of a repository.
	resolveWithin = 30 * time.Second
	maxRedirects  = 5
	advertised    = "/info/refs?service=git-upload-pack" // the first request of git
)

// elsewhereError is a repository whose server redirects to another one.
type elsewhereError struct{ source, to string }

func (e *elsewhereError) Error() string {
	return fmt.Sprintf("the repository %s redirects to another server, which is not followed; if you trust that server, install from %s", e.source, e.to)
}

// resolveRepository returns the address of a repository after the redirects of its own server, as for a missing .git or a new name.
// Git itself follows no redirect: the server could have it ask any address of this machine or its network.
func resolveRepository(ctx context.Context, source string) (string, error) {
	if !strings.HasPrefix(source, "https://") {
		return source, nil // only HTTP has redirects
	}

	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(source, "/")+advertised, nil)
	if err != nil {
		return source, nil //nolint:nilerr // git says what is wrong with the address
	}
	r.Header.Set("User-Agent", "git/rouse")
	client := &http.Client{Transport: dial.New(dial.Options{Own: []string{source}, Proxy: true}), CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if next.URL.Scheme != r.URL.Scheme || next.URL.Host != r.URL.Host {
			to, _, _ := strings.Cut(next.URL.Redacted(), "/info/refs")
			return &elsewhereError{source, to}
		}
		if len(via) > maxRedirects {
			return errors.New("too many redirects")
		}
		return nil
	}}
	resp, err := client.Do(r)
	var elsewhere *elsewhereError
	switch {
	case errors.As(err, &elsewhere):
		return "", elsewhere
	case err != nil: // the owner's settings of git may know another way
		return source, nil //nolint:nilerr // git says what is wrong
	}
	resp.Body.Close()

	at, ok := strings.CutSuffix(resp.Request.URL.String(), advertised)
	if !ok {
		return source, nil
	}
	return at, nil
}
