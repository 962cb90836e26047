package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
)

// maxRead bounds what is read of git at once, in characters.
const maxRead = 4 << 20

// allowedSettings are the settings of a repository that say how its files and objects are kept. None of them
// names anything that git would run, or another file.
var allowedSettings = []string{"core.repositoryformatversion", "core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode", "core.autocrlf", "core.eol", "core.safecrlf",
	"extensions.objectformat", "extensions.refstorage", "user.name", "user.email"}

// fixedConfig are settings of every call, whatever the repository says.
const fixedConfig = `[core]
	bare = false
	hooksPath = /dev/null
	fsmonitor = false
	untrackedCache = false
	pager = cat
	quotePath = false
[diff]
	ignoreSubmodules = all
[submodule]
	recurse = false
[protocol]
	allow = never
[gc]
	auto = 0
[maintenance]
	auto = false
[advice]
	addEmbeddedRepo = false
`

// sharedParts are the parts of a repository that belong to all its working folders.
var sharedParts = []string{"objects", "refs", "packed-refs", "reftable", "info", "logs", "shallow"}

// repo is the repository of one call.
type repo struct {
	host    *shell.Host
	dir     string // its top, which is the working folder
	scratch string
	env     []string
	write   []string // beside the scratch folder
}

// failure is what git, or the folder, is at fault for.
type failure struct{ envelope tool.Envelope }

func (f *failure) Error() string { return f.envelope.Message }

func fail(kind tool.Kind, format string, args ...any) error {
	return &failure{tool.Failure(kind, format, args...)}
}

// envelopeOf is the envelope of a failure; another error is the host's.
func envelopeOf(err error) (tool.Envelope, error) {
	var f *failure
	if errors.As(err, &f) {
		return f.envelope, nil
	}
	return tool.Envelope{}, err
}

// findTop says where the repository of a folder is; "" where there is none.
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

// openRepo begins a call. Close the repository.
func openRepo(ctx context.Context, host *shell.Host, agent string) (r *repo, err error) {
	dir := host.Roots.Workdir()
	switch at := findTop(dir); at {
	case dir:
	case "":
		return nil, fail(tool.KindRejected, "the working folder is not a git repository")
	default:
		return nil, fail(tool.KindRejected, "the working folder is a part of the repository %s, and git is for a repository that lies within the working folder", at)
	}

	if info, err := os.Lstat(filepath.Join(dir, ".git")); err != nil || !info.IsDir() {
		return nil, fail(tool.KindRejected, "the .git of the working folder leads out of it (a submodule, a linked worktree, or a link)")
	}

	r = &repo{host: host, dir: dir}
	if r.scratch, err = os.MkdirTemp("", "rouse-git-"); err != nil {
		return nil, fmt.Errorf("git needs a temporary folder: %w", err)
	}

	if r.scratch, err = filepath.EvalSymlinks(r.scratch); err == nil {
		err = r.prepare(ctx, agent)
	}
	if err != nil {
		r.close()
		return nil, err
	}

	return r, nil
}

func (r *repo) close() { os.RemoveAll(r.scratch) } //nolint:errcheck // of a folder for temporary files

// prepare makes the scratch folder, and from then on has git use it.
func (r *repo) prepare(ctx context.Context, agent string) error {
	r.env = []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_DIR=" + filepath.Join(r.scratch, "none"), "LC_ALL=C.UTF-8"}
	settings, err := r.settings(ctx)
	if err != nil {
		return err
	}

	common := filepath.Join(r.scratch, "common")
	if err := os.MkdirAll(filepath.Join(r.scratch, "objects"), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(common, 0o700); err != nil {
		return err
	}

	for _, name := range sharedParts {
		if err := os.Symlink(filepath.Join(r.dir, ".git", name), filepath.Join(common, name)); err != nil {
			return err
		}
	}

	if err := os.WriteFile(filepath.Join(common, "config"), []byte(config(settings, agent)), 0o600); err != nil {
		return err
	}

	r.env = slices.DeleteFunc(r.env, func(s string) bool { return strings.HasPrefix(s, "GIT_DIR=") })
	r.env = append(r.env, "GIT_DIR="+filepath.Join(r.dir, ".git"), "GIT_COMMON_DIR="+common, "GIT_WORK_TREE="+r.dir)
	return nil
}

// settings are those of the repository that are kept, and nothing that they include.
func (r *repo) settings(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	path := filepath.Join(r.dir, ".git", "config")
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return out, nil //nolint:nilerr // git needs none
	}

	text, err := r.output(ctx, "config", "--file", path, "--no-includes", "--null", "--list")
	if err != nil {
		return nil, err
	}

	for entry := range strings.SplitSeq(text, "\x00") {
		if key, value, ok := strings.Cut(entry, "\n"); ok && slices.Contains(allowedSettings, key) {
			out[key] = value
		}
	}

	return out, nil
}

// config is what git reads in place of the repository's own.
func config(settings map[string]string, agent string) string {
	if settings["user.name"] == "" || settings["user.email"] == "" {
		settings["user.name"], settings["user.email"] = agent, agent+"@rouse.invalid"
	}

	var out strings.Builder
	for _, key := range allowedSettings {
		if value, ok := settings[key]; ok {
			section, name, _ := strings.Cut(key, ".")
			fmt.Fprintf(&out, "[%s]\n\t%s = \"%s\"\n", section, name, strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value))
		}
	}

	return out.String() + fixedConfig
}

// output runs git and gives what it wrote. A failure of git is a *failure.
func (r *repo) output(ctx context.Context, args ...string) (string, error) {
	return r.gitWithInput(ctx, nil, args...)
}

// gitWithInput is git, with something to read.
func (r *repo) gitWithInput(ctx context.Context, in io.Reader, args ...string) (string, error) {
	out := shell.NewOutput(maxRead)
	if err := r.run(ctx, in, out, args...); err != nil {
		return "", err
	}

	text, whole := out.Raw()
	if !whole {
		return "", fail(tool.KindRejected, "git %s says more than can be read of it", args[0])
	}
	return string(text), nil
}

func (r *repo) run(ctx context.Context, in io.Reader, stdout *shell.Output, args ...string) error {
	stderr := shell.NewOutput(2_000)
	ended, err := r.host.Start(ctx, shell.Program{
		Argv: append([]string{"git", "--no-pager", "--literal-pathspecs"}, args...), Env: r.env, ReadOnly: true, Write: append([]string{r.scratch}, r.write...), Stdin: in, Stdout: stdout, Stderr: stderr,
	})
	if err != nil {
		e, host := shell.StartFailure(ctx, err)
		if host != nil {
			return host
		}
		return &failure{e}
	}

	switch {
	case ended.KilledBy != "":
		return fail(tool.KindTimeout, "git %s was ended: %s", args[0], ended.KilledBy)
	case ended.Exit != 0:
		return &exitError{ended.Exit, fail(tool.KindExecutionError, "git %s failed: %s", args[0], strings.TrimSpace(stderr.Text(strings.Clone)))}
	}

	return nil
}

// exitError is git's own way to say no.
type exitError struct {
	code int
	error
}

func (e *exitError) Unwrap() error { return e.error }

// line is what git says in one line; "" where it says no by the exit status 1.
func (r *repo) line(ctx context.Context, args ...string) (string, error) {
	text, err := r.output(ctx, args...)
	var no *exitError
	if errors.As(err, &no) && no.code == 1 {
		return "", nil
	}
	return strings.TrimSpace(text), err
}

// list is what git says with a zero byte after each.
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

// relative is a path as git names it, from the top.
func (r *repo) relative(path string) (string, error) {
	p, err := r.host.Roots.At(path, false)
	var bad *tool.PathError
	if errors.As(err, &bad) {
		return "", &failure{bad.Envelope()}
	}
	if err != nil {
		return "", err
	}
	defer p.Close()

	rel, err := filepath.Rel(r.dir, filepath.Join(p.Name(), p.Rel))
	if err != nil || !filepath.IsLocal(rel) {
		return "", fail(tool.KindInvalidArgs, "%s is not in the repository", path)
	}

	return filepath.ToSlash(rel), nil
}

// copyIndex has the following calls use a copy of the index.
func (r *repo) copyIndex() (err error) {
	from, err := r.host.Roots.Open(filepath.Join(".git", "index"))
	var bad *tool.PathError
	switch {
	case errors.As(err, &bad) && bad.Kind == tool.KindNotFound:
		return nil
	case err != nil:
		return fail(tool.KindRejected, "the index of the repository cannot be read: %v", err)
	}

	defer from.Close()

	to, err := os.OpenFile(filepath.Join(r.scratch, "index"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
