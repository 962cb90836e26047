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

// Source is the location of a skill to install.
type Source struct {
	// From is a folder, an archive (zip, tar, tar.gz) or the URL of a Git repository.
	From string
	// Path is the slash-separated path of the skill within the source. Optional if there is only
	// one skill.
	Path string
	// Revision is a branch, tag or commit of a repository. The default is HEAD.
	Revision string
}

// watchEvery is the interval between checks of the size of a running fetch.
const watchEvery = 20 * time.Millisecond

// repositoryURL matches repository URLs. They have a scheme or the form user@host:path.
var repositoryURL = regexp.MustCompile(`^(https|ssh|git|file)://|^[\w.-]+@[\w.-]+:`)

// Remote reports whether the source is a repository.
func (s Source) Remote() bool { return repositoryURL.MatchString(s.From) }

// Fetch stages the skill of a source below root, the directory in which it will be installed. The
// caller must close the result.
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

// fetchRepository fetches one revision of a repository and reads it with git archive. It does not
// check out files, so links, hooks and filters of the repository have no effect.
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
	// If the server refuses to send a commit by its hash, fetch all branches and tags.
	if _, err := runGit(watched, dir, "fetch", "--quiet", "--depth", "1", "--no-tags", "--", address, want); err != nil {
		if _, again := runGit(watched, dir, "fetch", "--quiet", "--tags", "--", address, "+refs/heads/*:refs/heads/*"); again != nil {
			return nil, cmp.Or(context.Cause(watched), err)
		}
		got = want
	}
	if folderSize(dir) > maxFetch { // the fetch ended before watch saw the size
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
	// The repository's attributes must not run filters from the owner's configuration.
	cmd.Env = append(cmd.Env, "GIT_CONFIG_GLOBAL="+os.DevNull)
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

// watch returns a context that is canceled when dir exceeds the maximum fetch size. The caller must
// call end.
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

// Latest returns the current commit of a revision. It returns "" if the revision is not a branch or
// tag, so presumably a commit.
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
		return "", nil // a commit, which does not change
	}

	return commit, nil
}

// revisionOf returns the revision to request from Git. It rejects text that Git would parse as an
// option.
func revisionOf(written string) (string, error) {
	if strings.HasPrefix(written, "-") {
		return "", fmt.Errorf("%q is no revision", written)
	}
	return cmp.Or(written, "HEAD"), nil
}

// gitCommand returns a Git command on the bare repository in dir, or outside of any repository if
// dir is "". The command never prompts, runs no programs of a repository, and uses only the allowed
// protocols. It uses the owner's settings, which may be needed to reach a server. It ignores the
// current directory of rouse, because an agent may have written settings there.
func gitCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "protocol.ext.allow=never", "-c", "http.followRedirects=false", "-c", "transfer.bundleURI=false", "-c", "safe.bareRepository=explicit", "-c", "fetch.unpackLimit=1", "-c", "fetch.recurseSubmodules=false", "-c", "gc.auto=0", "-c", "core.bigFileThreshold=16m"}, args...)...)
	endGroup(cmd)
	cmd.WaitDelay = 5 * time.Second
	repository := dir
	if dir == "" {
		// This path cannot contain a repository.
		dir, repository = os.TempDir(), filepath.Join(os.DevNull, "none")
	}

	cmd.Dir = dir
	// Remove variables that refer to another repository, for example if rouse runs in a Git hook.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(setting string) bool {
		name, _, _ := strings.Cut(setting, "=")
		return slices.Contains([]string{"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_CONFIG"}, name)
	})
	// GIT_ALLOC_LIMIT limits the size of one object in memory.
	cmd.Env = append(cmd.Env, "GIT_DIR="+repository, "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=https:ssh:git:file", "GIT_SSH_COMMAND=ssh -oBatchMode=yes", "GIT_LFS_SKIP_SMUDGE=1", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOC_LIMIT=256m", "LC_ALL=C")
	return cmd
}

// Settings returns the configuration files that Git reads for a fetch. It includes the usual
// user-level files even if they do not exist.
func Settings(ctx context.Context) ([]string, error) {
	out, err := runGit(ctx, "", "config", "--list", "--show-origin", "--name-only", "--includes", "-z")
	if err != nil {
		return nil, err
	}

	var files []string
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".gitconfig"), filepath.Join(cmp.Or(os.Getenv("XDG_CONFIG_HOME"), filepath.Join(home, ".config")), "git", "config"))
	}
	// The output also contains names, which do not begin with "file:".
	for origin := range strings.SplitSeq(out, "\x00") {
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
	// resolveWithin is the timeout for resolving the address of a repository.
	resolveWithin = 30 * time.Second
	maxRedirects  = 5
	advertised    = "/info/refs?service=git-upload-pack" // path of Git's first request
)

// elsewhereError is a redirect of a repository to another server.
type elsewhereError struct{ source, to string }

func (e *elsewhereError) Error() string {
	return fmt.Sprintf("the repository %s redirects to another server, which is not followed; if you trust that server, install from %s", e.source, e.to)
}

// resolveRepository follows redirects within the repository's own server and returns the resulting
// URL. Examples are a missing .git or a renamed repository. Git itself does not follow redirects
// here, because a server could send it to any address in the local network.
func resolveRepository(ctx context.Context, source string) (string, error) {
	if !strings.HasPrefix(source, "https://") {
		return source, nil // only HTTP has redirects
	}

	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(source, "/")+advertised, nil)
	if err != nil {
		return source, nil //nolint:nilerr // git reports the invalid address
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
	// Git may reach the server with the owner's settings.
	case err != nil:
		return source, nil //nolint:nilerr // git reports the error
	}
	resp.Body.Close()

	at, ok := strings.CutSuffix(resp.Request.URL.String(), advertised)
	if !ok {
		return source, nil
	}
	return at, nil
}
