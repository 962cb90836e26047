package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/fspath"
	"rouse/internal/gitview"
)

// maxRead limits the output of one git command, in characters.
const maxRead = 4 << 20

// ownConfig holds settings for every call, in addition to the allowed settings of the repository.
const ownConfig = `[core]
	bare = false
	pager = cat
	quotePath = false
[diff]
	ignoreSubmodules = all
[submodule]
	recurse = false
[protocol]
	allow = never
[advice]
	addEmbeddedRepo = false
`

// repo is the repository of one call.
type repo struct {
	host    *shell.Launcher
	dir     string // top folder of the repository, which is the working folder
	scratch string
	env     []string
	write   []string // writable folders in addition to the scratch folder
	began   bool     // a program of the call was started
}

// findTop returns the top folder of the repository that contains folder, or "".
func findTop(folder string) string {
	for {
		if _, err := os.Lstat(filepath.Join(folder, ".git")); err == nil {
			return folder
		}

		parent := filepath.Dir(folder)
		if parent == folder {
			return ""
		}
		folder = parent
	}
}

// openRepo prepares the repository for one call. The caller must close it.
func openRepo(ctx context.Context, host *shell.Launcher, agent string) (r *repo, err error) {
	dir := host.Roots.Workdir()
	switch at := findTop(dir); at {
	case dir:
	case "":
		return nil, tool.Refuse(tool.KindRejected, "the working folder is not a git repository")
	default:
		return nil, tool.Refuse(tool.KindRejected, "the working folder is a part of the repository %s, and git is for a repository that lies within the working folder", at)
	}

	// A .git that is a file or a link would point outside the run's roots.
	if info, err := os.Lstat(filepath.Join(dir, ".git")); err != nil || !info.IsDir() {
		return nil, tool.Refuse(tool.KindRejected, "the .git of the working folder leads out of it (a submodule, a linked worktree, or a link)")
	}

	r = &repo{host: host, dir: dir}
	if r.scratch, err = host.MkdirTemp("git"); err != nil {
		return nil, fmt.Errorf("git needs a temporary folder: %w", err)
	}

	if err := r.prepare(agent); err != nil {
		r.close()
		return nil, err
	}

	return r, nil
}

func (r *repo) close() { os.RemoveAll(r.scratch) } //nolint:errcheck // of a folder for temporary files

// prepare fills the scratch folder and sets the environment of all git commands.
func (r *repo) prepare(agent string) error {
	view, err := r.host.ViewOf(filepath.Join(r.dir, ".git"))
	if err != nil {
		return tool.Refuse(tool.KindRejected, "%v", err)
	}

	more := ownConfig
	// git refuses to commit without an author. The domain .invalid is reserved, so the address
	// cannot exist.
	if !view.Has("user.name") || !view.Has("user.email") {
		more += fmt.Sprintf("[user]\n\tname = \"%s\"\n\temail = \"%[1]s@rouse.invalid\"\n", agent)
	}
	common := filepath.Join(r.scratch, "common")
	err = errors.Join(os.Mkdir(filepath.Join(r.scratch, "objects"), 0o700), gitview.MakeCommon(common, filepath.Join(r.dir, ".git"), view.Config(more)))
	r.env = append(gitview.Env(), "GIT_OPTIONAL_LOCKS=0", "GIT_DIR="+filepath.Join(r.dir, ".git"), "GIT_COMMON_DIR="+common, "GIT_WORK_TREE="+r.dir)
	return err
}

// output runs git and returns its output. If git fails, the error is a *tool.Refusal.
func (r *repo) output(ctx context.Context, args ...string) (string, error) {
	return r.gitWithInput(ctx, nil, args...)
}

// gitWithInput is like output, with a standard input for git.
func (r *repo) gitWithInput(ctx context.Context, in io.Reader, args ...string) (string, error) {
	out := shell.NewOutput(maxRead)
	if err := r.run(ctx, in, out, args...); err != nil {
		return "", err
	}

	text, whole := out.Raw()
	if !whole {
		return "", tool.Refuse(tool.KindRejected, "git %s says more than can be read of it", args[0])
	}
	return string(text), nil
}

func (r *repo) run(ctx context.Context, in io.Reader, stdout *shell.Output, args ...string) error {
	stderr := shell.NewOutput(2_000)
	ended, err := r.host.Run(ctx, shell.Program{
		// --literal-pathspecs prevents a file named *.c or :(exclude)x from acting as a pattern.
		Argv: append([]string{"git", "--no-pager", "--literal-pathspecs"}, args...), Env: r.env, ReadOnly: true, Write: append([]string{r.scratch}, r.write...), Stdin: in, Stdout: stdout, Stderr: stderr,
	})
	if err != nil {
		e, host := shell.StartFailure(ctx, err)
		if host != nil {
			return host
		}
		e.NotStarted = e.NotStarted && !r.began
		return &tool.Refusal{Envelope: e}
	}

	r.began = true
	switch {
	case ended.KilledBy != "":
		return tool.Refuse(tool.KindTimeout, "git %s was ended: %s", args[0], ended.KilledBy)
	case ended.Exit != 0:
		return &exitError{ended.Exit, tool.Refuse(tool.KindExecutionError, "git %s failed: %s", args[0], strings.TrimSpace(stderr.Text(strings.Clone)))}
	}

	return nil
}

// exitError is a non-zero exit status of git with its standard error.
type exitError struct {
	code int
	error
}

func (e *exitError) Unwrap() error { return e.error }

// line returns output of one line. It returns "" if git exits with status 1, which means "no" for
// these commands.
func (r *repo) line(ctx context.Context, args ...string) (string, error) {
	text, err := r.output(ctx, args...)
	var no *exitError
	if errors.As(err, &no) && no.code == 1 {
		return "", nil
	}
	return strings.TrimSpace(text), err
}

// list returns the NUL-terminated entries of an output.
func (r *repo) list(ctx context.Context, args ...string) ([]string, error) {
	text, err := r.output(ctx, args...)
	return split(text), err
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
}

// relative returns a path as git writes it: relative to the top folder, with slashes.
func (r *repo) relative(path string) (string, error) {
	p, err := r.host.Roots.Resolve(path, false)
	if err != nil {
		return "", err
	}
	defer p.Close()

	rel, ok := fspath.Rel(r.dir, filepath.Join(p.Name(), p.Rel))
	if !ok {
		return "", tool.Refuse(tool.KindInvalidArgs, "%s is not in the repository", path)
	}

	return filepath.ToSlash(rel), nil
}

// copyIndex copies the index into the scratch folder, so that a draft does not change the original.
// It opens the index through the roots, so that a link cannot lead out of the repository.
func (r *repo) copyIndex() (err error) {
	from, err := r.host.Roots.Open(filepath.Join(".git", "index"))
	if bad, ok := errors.AsType[*tool.Refusal](err); ok && bad.Kind == tool.KindNotFound {
		return nil // no index yet
	}
	if err != nil {
		return tool.Refuse(tool.KindRejected, "the index of the repository cannot be read: %v", err)
	}

	defer from.Close()

	to, err := os.OpenFile(filepath.Join(r.scratch, "index"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
