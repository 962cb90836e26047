package condition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"rouse/agent/permit"
	"rouse/agent/plan"
	"rouse/agent/programs"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/fspath"
	"rouse/internal/ledger/label"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

const maxLine = 200

// commandOutput is how many characters are kept of what a command says, of which a line is shown.
const commandOutput = 4 << 10

// checkCommand runs a program without a shell and without input. It may be a script of the agent's,
// so it is confined as the agent's own commands, and read-only unless the condition allows writing.
func (q checker) checkCommand(ctx context.Context, g plan.Condition) (value string, ok bool, err error) {
	if err := permit.MakeWorkdir(&q.Attempt.Task); err != nil {
		return "", false, fmt.Errorf("the workdir cannot be made: %w", err)
	}

	argv, named, err := argvOf(g, q.Attempt.Plan.Boundary)
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
		q.Log.Error("a condition's command: "+ended.Unkept.Error(), "job", q.Attempt.Run.Job, "run", q.Attempt.Run.ID)
	}
	record := context.WithoutCancel(ctx)
	if err := errors.Join(q.Programs.RecordDisarmed(record, q.Attempt.Run, ended.Disarmed), q.Programs.RecordKept(record, q.Attempt.Run, ended.Kept)); err != nil {
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
		value += ": " + q.display(line, maxLine)
	}
	printed, _ := out.Raw()
	// The command may read each path in its argv. If such a path is reported as missing, it does not exist.
	refused := launcher.Refused(program, ended, string(printed))
	switch {
	case refused != nil && (refused.Write || !slices.Contains(g.Command, refused.Path)):
		value += "; " + hint(*refused, g)
	case view.withheld != "" && ended.Exit != 0 && strings.Contains(strings.ToLower(string(printed)), "no such file"):
		value += fmt.Sprintf("; a condition with the network or without a sandbox works in an empty folder, apart from those in which agents can write: to give it one, add beside the command read: [%s]", text.Visible(view.withheld))
	}

	return value, ended.Exit == 0, nil
}

// hint says that the sandbox may have refused an access, and which setting of the condition allows it.
func hint(refused shell.Refusal, g plan.Condition) string {
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

// argvOf returns the command with its links resolved, and the paths that it names, which it
// may read. A link below the boundary gives no permission, because an agent may have made it.
func argvOf(g plan.Condition, b nofollow.UntrustedDirs) (argv, named []string, err error) {
	argv = slices.Clone(g.Command)
	if argv[0], err = exec.LookPath(argv[0]); err != nil {
		return nil, nil, err
	}

	for i, word := range argv {
		// System programs are there for every command, and the sandbox has its own /proc, /sys and
		// /dev.
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

func notStarted(ctx context.Context, g plan.Condition, err error) error {
	program := g.Command[0]
	var path *fs.PathError
	var lookup *exec.Error
	switch {
	case ctx.Err() != nil:
		return explainTimeout(ctx, g, err)
	case programs.TierProblem(err) != nil:
		return fmt.Errorf("%w; a condition's command is confined as its agent's are: let the owner say sandbox: off with a reason, beside the command", programs.TierProblem(err))
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

func firstLine(out *shell.Output) string {
	printed, _ := out.Raw() // of a flood, the beginning is in it
	for line := range strings.FieldsFuncSeq(string(printed), func(r rune) bool { return r == '\n' || r == '\r' }) {
		if text.Collapse(text.OneLine(line)) != "" {
			return line
		}
	}
	return ""
}

type view struct {
	launcher *shell.Launcher
	withheld string // the workdir, if the command does not see it
	empty    string // the folder in which it works instead
}

func (v view) close() {
	if v.empty != "" {
		_ = os.RemoveAll(v.empty)
	}
}

// conditionView confines a condition to the places of its agent and those that its owner named. A
// command with the network, or without a sandbox, could leak what it reads. So it sees no folder in
// which an agent or a stranger can write unless its owner named that folder. Without a sandbox this
// is no wall: the command can open any path that it knows.
func (q checker) conditionView(g plan.Condition, named []string) (v view, err error) {
	of := *q.Attempt
	t := &of
	if g.Unconfined != "" {
		t.Agent.Unconfined = g.Unconfined
	}

	if powerful := g.Network || t.Agent.Unconfined != ""; powerful {
		t.Files, t.Manifest, t.Received, t.Detail.File, t.Detail.Folder, t.Agent.Skills = nil, "", "", nil, "", plan.Skills{}
		t.Agent.Read = slices.DeleteFunc(slices.Clone(t.Agent.Read), t.Plan.Writers.Overlaps)
		if !g.Write {
			t.Agent.Write = nil
		}
		if !g.Write && !slices.ContainsFunc(named, func(path string) bool { return q.within(t.Agent.Workdir, path) }) {
			if v.empty, err = q.Programs.TempDir("condition"); err != nil {
				return v, fmt.Errorf("a condition needs a temporary folder: %w", err)
			}
			v.withheld = t.Agent.Workdir
			t.BaseDir = v.empty
		}
	}
	for _, path := range named {
		if q.within(path, t.Agent.Workdir) { // the agent's own, as in the workdir
			t.Agent.Public = append(slices.Clone(t.Agent.Public), path)
		}
	}
	t.Agent.Read = append(slices.Clone(t.Agent.Read), named...)

	roots, err := permit.Roots(q.Ledger, t, nil)
	if err == nil {
		v.launcher, err = q.Programs.Launcher(t, roots)
	}
	if err != nil {
		v.close()
		return v, err
	}
	v.launcher.Limiter = q.Programs.Gates
	v.launcher.Starting = func(ctx context.Context, s shell.Start) error { return q.admit(ctx, g, t, roots, s) }
	return v, nil
}

// within reports whether a path is a folder, or lies in it, with the owner's links followed.
func (q checker) within(path, folder string) bool {
	return fspath.Within(q.resolved(path), q.resolved(folder))
}

func (q checker) resolved(path string) string {
	real, err := q.Attempt.Plan.Boundary.Resolve(path)
	if err != nil {
		return filepath.Clean(path)
	}
	return real
}

// admit decides by labels whether the command of a condition may start. A command that would need
// an approval does not start. It labels what the command may write, and records the start.
func (q checker) admit(ctx context.Context, g plan.Condition, t *plan.Attempt, roots *tool.Roots, s shell.Start) error {
	need := roots.ProgramNeed()
	held, from := need.AddsTaint, "strangers leave files in what it sees"
	for _, place := range need.Reads {
		letters, err := q.Ledger.Labels.Of(ctx, place)
		if err != nil {
			return err
		}
		if labels := tool.ParseTaint(letters); labels != 0 {
			if held |= labels; labels&tool.Untrusted != 0 {
				from = "once you have checked it: rouse grants trust " + text.Visible(place.Name)
			}
		}
	}
	if t.Agent.Unconfined != "" { // it reads whatever the daemon can
		held |= tool.Private
	}
	if outward := s.Network || t.Agent.Unconfined != ""; outward && held&tool.Untrusted != 0 && held&tool.Private != 0 {
		return q.mixed(g, from, need.NotPrivate)
	}

	if g.Write {
		if s.Network {
			held |= tool.Untrusted
		}
		missing, err := q.Ledger.Labels.Unlabelled(ctx, held.String(), need.Writes)
		if err == nil && len(missing) > 0 {
			err = q.Ledger.Labels.RecordTaint(ctx, q.Attempt.Try, label.TaintUpdate{Taint: (held &^ tool.Outward).String(), Writes: missing})
		}
		if err != nil {
			return err
		}
	}
	return q.Programs.RecordStart(ctx, q.Attempt.Run, "condition", s)
}

// mixed says why a condition does not start that would hold all three labels, and how to allow it.
func (q checker) mixed(g plan.Condition, from, notPrivate string) error {
	way := "network: host"
	if !g.Network {
		way = "sandbox: off"
	}
	if notPrivate != "" {
		notPrivate = " (if it is not: " + notPrivate + ")"
	}
	return fmt.Errorf("it would get untrusted content (%s), private data%s and %s together, which needs an approval, and a condition cannot wait for one; change one of them, or show it no such folder",
		from, notPrivate, way)
}
