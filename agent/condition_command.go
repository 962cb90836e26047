package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"rouse/agent/sandbox"
	"rouse/agent/tool/shell"
	"rouse/internal/fspath"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

// maxConditionLine is the maximum number of characters shown of the first line of a command's output.
const maxConditionLine = 200

// commandOutput is how many characters are kept of what a command says, of which a line is shown.
const commandOutput = 4 << 10

// checkCommand runs a program that the owner named, without a shell and without input. It works in a folder
// where an agent may write, and may be a script of the agent's: so it is confined as the agent's own
// commands are, and can change nothing unless the condition says so.
func (q conditionChecker) checkCommand(ctx context.Context, g Condition) (value string, ok bool, err error) {
	if err := q.task.makeWorkdir(); err != nil {
		return "", false, fmt.Errorf("the workdir cannot be made: %w", err)
	}

	argv, named, err := conditionArgv(g, q.task.boundary)
	if err != nil {
		return "", false, notStarted(ctx, g, err)
	}

	view, err := q.conditionView(g, named)
	if err != nil {
		return "", false, err
	}
	defer view.close()
	launcher := view.launcher

	out := shell.NewOutput(commandOutput) // one for both, which keeps their order
	program := shell.Program{Argv: argv, ReadOnly: !g.Write, Network: g.Network, Stdout: out, Stderr: out}
	ended, err := launcher.Run(ctx, program)
	if err != nil {
		return "", false, notStarted(ctx, g, err)
	}
	if ended.Unkept != nil {
		q.log.Error("a condition's command: "+ended.Unkept.Error(), "job", q.task.run.Job, "run", q.task.run.ID)
	}
	record := context.WithoutCancel(ctx)
	if err := errors.Join(q.recordDisarmed(record, q.task.run, ended.Disarmed), q.recordKept(record, q.task.run, ended.Kept)); err != nil {
		return "", false, err
	}

	switch {
	case ctx.Err() != nil:
		return "", false, explainTimeout(ctx, g, context.DeadlineExceeded)
	case ended.KilledBy != "":
		return "", false, fmt.Errorf("it was ended because it went beyond a limit (%s)", ended.KilledBy)
	case ended.Exit < 0:
		return "", false, fmt.Errorf("it was ended from outside (signal: %s)", ended.Signal)
	}

	value = fmt.Sprintf("exit %d", ended.Exit)
	if line := firstLine(out); line != "" {
		value += ": " + q.display(line, maxConditionLine)
	}
	printed, _ := out.Raw()
	// The command may read each path in its argv. If such a path is reported as missing, it does not exist.
	refused := launcher.Refused(program, ended, string(printed))
	switch {
	case refused != nil && (refused.Write || !slices.Contains(g.Command, refused.Path)):
		value += "; " + conditionHint(*refused, g)
	case view.withheld != "" && ended.Exit != 0 && strings.Contains(strings.ToLower(string(printed)), "no such file"):
		value += fmt.Sprintf("; a condition with the network or without a sandbox works in an empty folder, apart from those in which agents can write: to give it one, add beside the command read: [%s]", text.Visible(view.withheld))
	}

	return value, ended.Exit == 0, nil
}

// conditionHint says that the sandbox may have refused an access, and which setting of the condition allows it.
func conditionHint(refused shell.Refusal, g Condition) string {
	read := "read: [" + cmp.Or(text.Visible(refused.Path), "PATH") + "]"
	switch {
	case refused.Git != "":
		return refused.Hint(nil)
	case !g.Write && refused.Write:
		read = "write: true"
	case !g.Write:
		read += ", or write: true to let it write where its agent may"
	}
	return fmt.Sprintf("the sandbox (tier %s) may have refused that: to allow it, add beside the command %s", refused.Tier, read)
}

// conditionArgv is the command as it is started, and the paths that it names: what its owner names it may
// read. In the sandbox these exist by the names alone that they have without links. A link below the boundary
// gives no leave: whoever made it would choose what is read.
func conditionArgv(g Condition, b nofollow.Boundary) (argv, named []string, err error) {
	argv = slices.Clone(g.Command)
	if argv[0], err = exec.LookPath(argv[0]); err != nil {
		return nil, nil, err
	}

	for i, word := range argv {
		// What is found on the PATH of the system is there for every command. The rest of the machine's
		// own views (processes, devices) a command has in versions of its own.
		if !filepath.IsAbs(word) || i == 0 && shell.IsSystemProgram(word) || slices.ContainsFunc([]string{"/proc", "/sys", "/dev"}, func(dir string) bool { return fspath.Within(word, dir) }) {
			continue
		}
		actual, err := b.Resolve(word)
		if err == nil {
			_, err = b.Stat(actual)
		}
		if err == nil && filepath.Dir(actual) != actual {
			argv[i], named = actual, append(named, actual)
		}
	}

	return argv, append(named, g.Read...), nil
}

// notStarted says in words why a command did not start.
func notStarted(ctx context.Context, g Condition, err error) error {
	program := g.Command[0]
	var path *fs.PathError
	var weak *sandbox.TierError
	var lookup *exec.Error
	switch {
	case ctx.Err() != nil:
		return explainTimeout(ctx, g, err)
	case errors.As(err, &weak):
		return fmt.Errorf("%w; a condition's command is confined as its agent's are: let the owner say sandbox: off with a reason, beside the command", weak)
	case errors.As(err, &lookup) && errors.Is(err, exec.ErrNotFound) && shell.Elsewhere(program) != "":
		return fmt.Errorf("the program %q is not on the daemon's PATH; write its whole path: command: [%s]", program, shell.Elsewhere(program))
	case errors.As(err, &lookup) && errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("there is no program %q on the daemon's PATH; install it, or give its path", program)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%s may not be executed; see its permissions (chmod +x)", program)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound): // of the sandbox, once it was found here
		return fmt.Errorf("%s does not exist, or the interpreter in its first line does not", program)
	case errors.As(err, &path):
		return fmt.Errorf("%s cannot be started: %w", program, path.Err)
	}

	return err
}

// firstLine is the first line that says something.
func firstLine(out *shell.Output) string {
	text, _ := out.Raw() // of a flood, the beginning is in it
	for line := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == '\n' || r == '\r' }) {
		if oneLine(line) != "" {
			return line
		}
	}
	return ""
}
