//go:build amd64 || arm64

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rouse/internal/fspath"
	"rouse/internal/nofollow"
	"rouse/internal/owner"
)

// host starts confined commands on this machine.
type host struct {
	scratch      string   // for folders that are needed while a command runs; "" is the system's
	self         *os.File // this binary as it was when the daemon started: an upgrade may replace the file
	bwrap        string   // where bubblewrap is
	pidNamespace bool     // this process may create a PID namespace without bubblewrap
	short        bool     // the last trial lacked open files, memory or processes

	mu           sync.Mutex
	placeholders map[string]int // folders created to be mounted over (see createPlaceholders), with how many commands use each

	scannedAt time.Time // when the processes were last listed
	scanned   []process
}

func newHost(scratch string) (*host, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("sandbox: this program cannot be started again: %w", err)
	}
	return &host{scratch: scratch, self: self, placeholders: map[string]int{}}, nil
}

func (h *host) close() error { return h.self.Close() }

// run starts a command and waits for its end.
func (h *host) run(ctx context.Context, t Tier, c Command) (Result, error) {
	return h.runWithCanaries(ctx, t, c, nil)
}

// withSelf names this binary by the descriptor that every supervisor inherits.
func (c Command) withSelf() (Command, error) {
	c.Argv = append([]string{selfPath}, c.Argv[1:]...)
	return c, nil
}

// runWithCanaries also refuses to start the command if it could read one of the canary files.
func (h *host) runWithCanaries(ctx context.Context, t Tier, c Command, canaries []string) (Result, error) {
	fail := func(err error) (Result, error) { return Result{}, &StartError{Argv0: c.Argv[0], Tier: t, Err: err} }
	l, cleanup, err := h.layout(t, c)
	if err != nil {
		return fail(err)
	}

	s := launchSpec{Tier: t, Argv: c.Argv, Self: c.Self, Env: c.Env, Dir: l.dir, Network: c.Network, Limits: c.Limits, Umask: owner.Umask(),
		Canary: canaries, Threads: countUserThreads(h.scan()) + uint64(maxThreads(c.Limits))}
	var arguments []string
	switch t {
	case TierA:
		arguments, s.Rules = bubblewrapArgs(l, c), tierARules(l)
		s.Places, err = places(l)
	case TierB:
		if s.Rules, err = tierBRules(l, c.Network); err == nil && c.Temp == "" {
			cleanup, err = s.makeTemp(h.scratch)
		}
	}
	if err != nil {
		return fail(err)
	}
	defer cleanup()

	res, err := h.start(ctx, s, arguments, c)
	if err != nil {
		return fail(err)
	}

	res.Tier = t
	return res, nil
}

// start starts a supervisor with its launch spec, inside bubblewrap when there are arguments for it.
func (h *host) start(ctx context.Context, s launchSpec, arguments []string, c Command) (Result, error) {
	cmd := &exec.Cmd{Path: selfPath, Args: []string{"rouse", supervisorArg}, Env: []string{},
		Dir: "/", SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	// Without bwrap the supervisor is root itself, and the first generation below it is the command.
	k := &supervisedTree{host: h, ownDepth: 1, limit: c.Limits.Memory}
	defer k.close()

	if err := k.open(cmd, s, arguments); err != nil {
		return Result{}, err
	}

	switch {
	case arguments != nil:
		k.ownDepth = 2 // bwrap is root, and the supervisor its child
		cmd.Path = h.bwrap
		cmd.Args = []string{"bwrap", "--args", fmt.Sprint(bwrapFD), "--", selfPath, supervisorArg}
	case h.pidNamespace && s.Tier == TierB:
		// As process 1 of its own namespace the supervisor can kill everything below it in one go.
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}

	head := &prefixWriter{w: c.Stderr}
	k.stderr = head
	// bwrap reports its own failures on the standard error of the command: keep the beginning of it
	// for the case that no command ever started.
	if arguments != nil {
		if sameWriter(c.Stdout, c.Stderr) {
			c.Stdout = head
		}
		c.Stderr = head
	}

	return runToEnd(ctx, cmd, k, c)
}

// supervisedTree controls the processes of a command through its supervisor.
type supervisedTree struct {
	host       *host
	ownDepth   int   // generations below root from which on processes count as the command's own
	root       int   // the process that was started: bwrap or the supervisor
	limit      int64 // bytes
	stderr     *prefixWriter
	childFiles []*os.File // the child's ends of pipes, and its memfds
	report     *os.File
	control    *os.File
	once       sync.Once
}

// open creates the files that a supervisor inherits, in the order of their descriptors.
func (k *supervisedTree) open(cmd *exec.Cmd, s launchSpec, arguments []string) error {
	file, err := s.memfd()
	if err != nil {
		return err
	}

	k.childFiles = append(k.childFiles, file)
	reports, report, err := os.Pipe()
	if err != nil {
		return err
	}

	k.report, k.childFiles = reports, append(k.childFiles, report)
	control, controls, err := os.Pipe()
	if err != nil {
		return err
	}

	k.control, k.childFiles = controls, append(k.childFiles, control)
	cmd.ExtraFiles = []*os.File{k.host.self, file, report, control}
	if arguments == nil {
		return nil
	}

	list, err := newMemfd("arguments", func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Join(arguments, "\x00")+"\x00")
		return err
	})
	if err != nil {
		return err
	}

	k.childFiles = append(k.childFiles, list)
	cmd.ExtraFiles = append(cmd.ExtraFiles, list)
	return nil
}

func (k *supervisedTree) closeChildFiles() {
	for _, f := range k.childFiles {
		f.Close()
	}
	k.childFiles = nil
}

func (k *supervisedTree) closeControl() { k.once.Do(func() { k.control.Close() }) }

func (k *supervisedTree) close() {
	k.closeChildFiles()
	if k.control != nil {
		k.closeControl()
	}
	if k.report != nil {
		k.report.Close()
	}
}

func (k *supervisedTree) started(p *os.Process) error {
	k.root = p.Pid
	k.closeChildFiles()
	return nil
}

func (k *supervisedTree) terminate() {
	_, _ = k.control.Write([]byte{'t'}) // fails when the supervisor is gone, and then nothing is left to terminate
}

// kill closes the control pipe, upon which the supervisor kills everything. When that was not enough,
// the second call kills the whole tree from here.
func (k *supervisedTree) kill() {
	first := false
	k.once.Do(func() { first = true; k.control.Close() })
	if first {
		return
	}

	for _, p := range descendantsOf(k.root) {
		_ = unix.Kill(p.pid, unix.SIGKILL)
	}
}

func (k *supervisedTree) usage() usage {
	var u usage
	var all []process
	for _, p := range k.descendants() {
		if p.depth >= k.ownDepth {
			u.processes++
			u.threads += p.threads
			u.memory += p.memory
			all = append(all, p)
		}
	}

	// Shared memory was counted once for each process. The exact sum needs smaps_rollup, which walks all
	// page tables of a process: only worth it where the rough sum is over the limit.
	if len(all) > 1 && u.memory > k.limit {
		var exact int64
		for _, p := range all {
			exact += proportionalMemory(p)
		}
		u.memory = exact
	}

	return u
}

// descendants lists the living processes of the tree. It is asked often: where the kernel names the children of a process, nobody else's
// processes are read.
func (k *supervisedTree) descendants() []process {
	if namesChildren() {
		return walkDescendants(k.root)
	}
	return liveDescendants(k.host.scan(), k.root)
}

// scan lists all processes. Commands that ask at about the same time share one listing.
func (h *host) scan() []process {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.scannedAt) > pollInterval/2 {
		h.scanned, h.scannedAt = processes(), time.Now()
	}
	return h.scanned
}

// result reads the reports of the supervisor.
func (k *supervisedTree) result(state *os.ProcessState) (Result, error) {
	// All ends but ours are closed by now, unless a process that escaped holds one open.
	if err := k.report.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return Result{}, err
	}

	begun := false
	for d := json.NewDecoder(k.report); ; {
		var r report
		if err := d.Decode(&r); err != nil {
			break
		}

		switch {
		case r.Failed != "":
			return Result{}, &supervisorError{r.Failed, unix.Errno(r.Errno)}
		case r.Ended:
			res := Result{Exit: r.Exit, CPU: time.Duration(r.CPU), MaxRSS: r.MaxRSS}
			if r.Signal != 0 {
				res.Signal = unix.SignalName(unix.Signal(r.Signal))
			}
			return res, nil
		}

		begun = true
	}
	if !begun {
		return Result{}, k.noReportError(state)
	}

	// The supervisor was killed together with the command.
	return Result{Exit: -1, Signal: "SIGKILL", CPU: state.UserTime() + state.SystemTime()}, nil
}

// noReportError explains a supervisor that ended before it reported anything.
func (k *supervisedTree) noReportError(state *os.ProcessState) error {
	if text := strings.TrimSpace(k.stderr.text()); text != "" {
		return fmt.Errorf("%w: %s", errNoReport, text)
	}
	return fmt.Errorf("%w: %s", errNoReport, state)
}

// supervisorError is a failure that a supervisor reported.
type supervisorError struct {
	text  string
	errno unix.Errno
}

func (e *supervisorError) Error() string { return e.text }

func (e *supervisorError) Is(target error) bool {
	// The error itself stayed in the other process; what can be asked of it is its errno.
	return target == exec.ErrNotFound && e.errno == unix.ENOENT || e.errno != 0 && e.errno.Is(target)
}

// prefixWriter passes on what is written, and keeps the beginning of it.
type prefixWriter struct {
	w  io.Writer
	mu sync.Mutex
	b  []byte
}

func (h *prefixWriter) Write(b []byte) (int, error) {
	h.mu.Lock()
	if room := 1000 - len(h.b); room > 0 {
		h.b = append(h.b, b[:min(room, len(b))]...)
	}

	h.mu.Unlock()
	if h.w == nil {
		return len(b), nil
	}
	return h.w.Write(b)
}

func (h *prefixWriter) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.b)
}

// layout resolves what a command is given, and creates the placeholders that it needs. Both happen
// under one lock: between them, another command could end and remove a placeholder that was found.
func (h *host) layout(t Tier, c Command) (l layout, cleanup func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()

	c.Read = slices.DeleteFunc(slices.Clone(c.Read), func(path string) bool {
		hide := h.needsPlaceholder(path, c.Write)
		if hide {
			c.Masked = append(slices.Clip(c.Masked), path)
		}
		return hide
	})
	if l, err = newLayout(c); err != nil || t != TierA {
		return l, func() {}, err
	}

	// What lies in the placeholder of another command is hidden by hiding the placeholder itself.
	for i, m := range l.masks {
		for path := range h.placeholders {
			if m.root != "" && m.path != path && fspath.Within(m.path, path) {
				l.masks[i] = mask{path: path, root: m.root, missing: true}
			}
		}
	}
	l.masks = sortedMasks(l.masks) // several may lie in one placeholder, which is used and released once

	cleanup, err = h.createPlaceholders(l, c.Boundary)
	return l, cleanup, err
}

// needsPlaceholder reports whether a read-only path below a writable folder does not exist, or is only
// the placeholder of another command, which vanishes with that one. The command could then create the
// name itself, so that it is masked instead.
func (h *host) needsPlaceholder(path string, write []string) bool {
	at := resolveExisting(path)
	if h.placeholders[at] > 0 {
		return true
	}
	_, err := os.Lstat(at)
	return errors.Is(err, os.ErrNotExist) && slices.ContainsFunc(write, func(w string) bool { return fspath.Within(at, resolveExisting(w)) })
}

// placeholder is an empty folder that stands for a masked name which does not exist. The folder that it lies in stays
// open while a command needs it: a link may take the place of that meanwhile.
type placeholder struct {
	in   *os.Root
	name string
}

// openPlaceholder opens the folder of a placeholder, and follows no link below the boundary or the mask's root.
func openPlaceholder(b nofollow.Boundary, m mask) (placeholder, error) {
	root, err := b.OpenRoot(m.root)
	if err != nil {
		return placeholder{}, err
	}
	defer root.Close()

	rel := strings.TrimPrefix(m.path[len(m.root):], "/")
	in, err := nofollow.OpenBelow(root, filepath.Dir(rel))
	return placeholder{in, filepath.Base(rel)}, err
}

// createPlaceholders creates empty folders for masked names that do not exist, because only what exists
// can be mounted over. The last command that masks one removes it again, unless somebody else has put
// something into it. The caller holds the host's lock.
func (h *host) createPlaceholders(l layout, b nofollow.Boundary) (cleanup func(), err error) {
	made := map[string]placeholder{}
	release := func() {
		for path, p := range made {
			h.releasePlaceholder(path, p)
		}
	}

	for _, m := range l.masks {
		if m.root == "" || (!m.missing && h.placeholders[m.path] == 0) {
			continue
		}

		p, err := openPlaceholder(b, m)
		if err == nil && m.missing {
			if err = p.in.Mkdir(p.name, 0o700); errors.Is(err, os.ErrExist) {
				err = nil
			}
			if err != nil {
				p.in.Close()
			}
		}
		if err != nil {
			release()
			return nil, fmt.Errorf("what it may not create cannot be hidden: %w", err)
		}

		h.placeholders[m.path]++
		made[m.path] = p
	}

	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		release()
	}, nil
}

func (h *host) releasePlaceholder(path string, p placeholder) {
	defer p.in.Close()
	h.placeholders[path]--
	if h.placeholders[path] == 0 {
		delete(h.placeholders, path)
		_ = p.in.Remove(p.name) // it stays when somebody has put something into it
	}
}

// tierBRules are Landlock's rules where no mounts shape the view: the system, and what is given.
func tierBRules(l layout, network bool) ([]rule, error) {
	rules, err := l.landlockRules()
	if err != nil {
		return nil, err
	}

	for _, path := range slices.Concat(systemFolders, systemFiles(network), tierBSystem) {
		if to, err := resolve(path, "the system"); err == nil { // not every system has all of them
			rules = append(rules, rule{to, accessRead})
		}
	}

	for _, path := range devices {
		rules = append(rules, rule{path, accessDevice})
	}

	return rules, nil
}

// makeTemp creates a folder for temporary files, because without mounts /tmp is the machine's own.
func (s *launchSpec) makeTemp(scratch string) (remove func(), err error) {
	if s.Temp, err = MkdirTemp(scratch, "sandbox"); err != nil {
		return nil, err
	}

	s.Rules = append(s.Rules, rule{s.Temp, accessWrite})
	if !slices.ContainsFunc(s.Env, func(text string) bool { return strings.HasPrefix(text, "TMPDIR=") }) {
		s.Env = append(slices.Clone(s.Env), "TMPDIR="+s.Temp)
	}
	return func() { _ = os.RemoveAll(s.Temp) }, nil // what cannot be removed is removed with the scratch folder
}
