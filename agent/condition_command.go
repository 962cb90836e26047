package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	commandOutput = 4 << 10 // bytes that are kept
	// commandGrace is how long is waited for the output of a program that has ended: a
	// child of it may hold the pipe forever.
	commandGrace = time.Second
)

// checkCommand runs a program of the owner's, not of the agent's: without a shell, without
// the daemon's environment, without input.
func (q conditionChecker) checkCommand(ctx context.Context, g Condition) (value string, ok bool, err error) {
	dir := q.task.agent.Workdir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", false, fmt.Errorf("the workdir cannot be made: %w", err)
	}

	// A pipe of our own, to tell the end of the command from the end of its output: a child that it
	// left behind may hold the pipe open.
	reader, writer, err := os.Pipe()
	if err != nil {
		return "", false, err
	}
	defer reader.Close()

	var killed bool
	cmd := exec.CommandContext(ctx, g.Command[0], g.Command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, commandEnv(), writer, writer, commandGrace
	ownGroup(cmd)
	cmd.Cancel = func() error {
		killed = true
		return killGroup(cmd.Process)
	}
	err = cmd.Start()
	writer.Close() // the command has its own; with ours open the reader would never see the end
	if err != nil {
		return "", false, notStarted(ctx, g, err)
	}

	var out firstOutput
	read := make(chan struct{})
	go func() {
		_, _ = io.Copy(&out, reader) // what can be read is enough
		close(read)
	}()
	_ = cmd.Wait() // its state says more

	select {
	case <-read:
	case <-time.After(commandGrace): // it left a process behind that holds the pipe
		_ = killGroup(cmd.Process) // which may have ended meanwhile
		reader.Close()
		<-read
	}

	state := cmd.ProcessState
	switch {
	case killed:
		return "", false, explainTimeout(ctx, g, context.DeadlineExceeded)
	case state.ExitCode() < 0:
		return "", false, fmt.Errorf("it was ended from outside (%s)", state)
	}

	value = fmt.Sprintf("exit %d", state.ExitCode())
	if line := out.line(); line != "" {
		value += ": " + line
	}

	return value, state.Success(), nil
}

func notStarted(ctx context.Context, g Condition, err error) error {
	program := g.Command[0]
	var path *fs.PathError
	switch {
	case ctx.Err() != nil:
		return explainTimeout(ctx, g, err)
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("there is no program %q on the daemon's PATH; install it, or give its path", program)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be executed; see its permissions (chmod +x)", program)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist, or the interpreter in its first line does not", program)
	case errors.As(err, &path):
		return fmt.Errorf("%s cannot be started: %w", program, path.Err)
	}

	return err
}

// commandEnv is all that a command knows of the daemon's environment.
func commandEnv() []string {
	env := []string{} // nil would mean all of it
	for _, name := range commandNames {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// firstOutput keeps the beginning of what is written, and lets the writer go on.
type firstOutput struct{ kept []byte }

// Write implements io.Writer.
func (h *firstOutput) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), commandOutput-len(h.kept))]...)
	return len(p), nil
}

// line is the first line that says something.
func (h *firstOutput) line() string {
	for line := range strings.FieldsFuncSeq(string(h.kept), func(r rune) bool { return r == '\n' || r == '\r' }) {
		if oneLine(line) != "" {
			return line
		}
	}
	return ""
}
