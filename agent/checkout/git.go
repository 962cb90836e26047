package checkout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"rouse/internal/gitview"
	"rouse/internal/text"
)

// minGitMajor and minGitMinor are the first version with merge-tree --write-tree.
const (
	minGitMajor, minGitMinor = 2, 38

	maxAnswer = 64 << 20 // bytes of output of one git command
	gitTime   = 30 * time.Minute
)

// fixedSettings are passed to each git command. They come last, so that configuration files cannot
// override them.
var fixedSettings = []string{
	"core.hooksPath=" + os.DevNull, "core.fsmonitor=false", "core.attributesFile=" + os.DevNull, "core.excludesFile=" + os.DevNull, "core.quotePath=false", "core.untrackedCache=false",
	"gc.auto=0", "maintenance.auto=false", "fetch.writeCommitGraph=false", "fetch.recurseSubmodules=false", "submodule.recurse=false", "diff.ignoreSubmodules=all",
	"protocol.allow=never", "protocol.file.allow=always", "log.mailmap=false", "log.showSignature=false", "i18n.logOutputEncoding=UTF-8", "advice.detachedHead=false", "core.bigFileThreshold=32m",
	"commit.gpgSign=false", "init.defaultBranch=main", "credential.helper=", "core.askPass=",
}

// git runs git of the host in one repository. All files of the repository belong to the owner or to
// rouse.
type git struct {
	dir    string   // GIT_DIR
	common string   // GIT_COMMON_DIR; empty if it is dir
	work   string   // GIT_WORK_TREE; empty without a worktree
	env    []string // additional variables
}

// environment returns the environment of the host's git. It excludes the configuration of the
// machine and the user.
func environment() []string {
	env := append(gitview.Env(), "GIT_ATTR_NOSYSTEM=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_LITERAL_PATHSPECS=1", "GIT_PAGER=cat", "GIT_EDITOR=false")
	for _, name := range []string{"PATH", "SystemRoot", "TMPDIR", "TEMP", "TMP"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// command returns a git command that has not started.
func (g git) command(ctx context.Context, args ...string) *exec.Cmd {
	var argv []string
	for _, setting := range fixedSettings {
		argv = append(argv, "-c", setting)
	}
	c := exec.CommandContext(ctx, "git", append(argv, args...)...)
	c.Env, c.WaitDelay = environment(), 5*time.Second
	c.Dir = os.TempDir()
	if g.dir != "" {
		c.Env, c.Dir = append(c.Env, "GIT_DIR="+g.dir), g.dir
	}
	if g.common != "" {
		c.Env = append(c.Env, "GIT_COMMON_DIR="+g.common)
	}
	if g.work != "" {
		c.Env, c.Dir = append(c.Env, "GIT_WORK_TREE="+g.work), g.work
	}
	c.Env = append(c.Env, g.env...)
	return c
}

// gitError is a failed git command.
type gitError struct {
	args []string
	exit int
	text string // standard error
}

func (e *gitError) Error() string {
	return fmt.Sprintf("git %s failed (exit code %d): %s", e.args[0], e.exit, e.text)
}

// run runs git and returns its output.
func (g git) run(ctx context.Context, args ...string) (string, error) {
	return g.runWith(ctx, nil, args...)
}

// runWith is like run, with a standard input.
func (g git) runWith(ctx context.Context, in io.Reader, args ...string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, gitTime)
	defer stop()

	out, said := &bounded{most: maxAnswer, stop: true}, &bounded{most: 8 << 10}
	c := g.command(ctx, args...)
	c.Stdin, c.Stdout, c.Stderr = in, out, said
	step()
	err := c.Run()
	step()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("git %s: %w", args[0], context.Cause(ctx))
	case errors.Is(err, exec.ErrNotFound):
		return "", errNoGit
	case out.cut:
		return "", fmt.Errorf("git %s: its output is longer than %d MiB", args[0], maxAnswer>>20)
	case err != nil:
		e := &gitError{args: args, exit: -1, text: strings.TrimSpace(text.Clean(said.String()))}
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			e.exit = exit.ExitCode()
		} else {
			e.text = strings.TrimSpace(e.text + " " + err.Error())
		}
		return out.String(), e
	}
	return out.String(), nil
}

// line is like run, for an output of one line. It returns "" if git exits with 1, which means "no".
func (g git) line(ctx context.Context, args ...string) (string, error) {
	out, err := g.run(ctx, args...)
	if exitCode(err) == 1 {
		return "", nil
	}
	return strings.TrimSpace(out), err
}

// exitCode returns the exit code of a gitError, or 0 for any other error and for nil.
func exitCode(err error) int {
	if e, ok := errors.AsType[*gitError](err); ok {
		return e.exit
	}
	return 0
}

var errNoGit = fmt.Errorf("checkout: needs git %d.%d or later, and there is no git in PATH; install git", minGitMajor, minGitMinor)

// checkGit returns an error if git is missing or too old.
func checkGit(ctx context.Context) error {
	out, err := git{}.run(ctx, "version")
	if err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(out, "git version %d.%d", &major, &minor); err != nil {
		return fmt.Errorf("checkout: git version printed %s", strconv.Quote(text.Head(out, 80)))
	}
	if major < minGitMajor || major == minGitMajor && minor < minGitMinor {
		return fmt.Errorf("checkout: needs git %d.%d or later, and this machine has %d.%d; install a newer git", minGitMajor, minGitMinor, major, minor)
	}
	return nil
}

// bounded keeps the beginning of the data written to it.
type bounded struct {
	bytes.Buffer
	most int
	stop bool // fail the write that exceeds the limit
	cut  bool
}

var errLong = errors.New("the output is too long")

func (b *bounded) Write(p []byte) (int, error) {
	keep := p
	if room := b.most - b.Len(); len(keep) > room {
		keep, b.cut = keep[:max(room, 0)], true
	}
	b.Buffer.Write(keep)
	if b.cut && b.stop {
		return len(keep), errLong
	}
	return len(p), nil
}

// split returns the NUL-terminated entries of an output.
func split(out string) []string {
	if out == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
}
