//go:build amd64 || arm64

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// host is what this system has for confinement.
type host struct {
	self         *os.File // this binary, as it was when it started: an upgrade may replace it
	bwrap        string   // where bubblewrap is
	pidNamespace bool     // the user of this process may make a namespace of processes without bubblewrap

	mu           sync.Mutex
	placeholders map[string]int // what was made to be hidden, and how many commands hide it

	scannedAt time.Time // when all processes were looked at last
	scanned   []process
}

func newHost() (*host, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("sandbox: this program cannot be started anew: %w", err)
	}
	return &host{self: self, placeholders: map[string]int{}}, nil
}

func (h *host) close() error { return h.self.Close() }

// run starts a command and waits for its end.
func (h *host) run(ctx context.Context, t Tier, c Command) (Result, error) {
	return h.runWithCanaries(ctx, t, c, nil)
}

// runWithCanaries refuses to start a command that could read one of some files.
func (h *host) runWithCanaries(ctx context.Context, t Tier, c Command, canaries []string) (Result, error) {
	fail := func(err error) (Result, error) { return Result{}, &StartError{Argv0: c.Argv[0], Tier: t, Err: err} }
	l, cleanup, err := h.layout(t, c)
	if err != nil {
		return fail(err)
	}

	s := launchSpec{Tier: t, Argv: c.Argv, Env: c.Env, Dir: l.dir, Network: c.Network, Limits: c.Limits,
		Canary: canaries, Threads: countUserThreads(h.scan()) + uint64(maxThreads(c.Limits))}
	var arguments []string
	switch t {
	case TierA:
		arguments, s.Rules = bubblewrapArgs(l, c), tierARules(l)
	case TierB:
		if s.Rules, err = tierBRules(l, c.Network); err == nil {
			cleanup, err = s.makeTemp()
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

// start starts a keeper with its stage, within bubblewrap when there are arguments for it.
func (h *host) start(ctx context.Context, s launchSpec, arguments []string, c Command) (Result, error) {
	cmd := &exec.Cmd{Path: fmt.Sprintf("/proc/self/fd/%d", selfFD), Args: []string{"rouse", supervisorArg}, Env: []string{},
		Dir: "/", SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	k := &supervisedTree{host: h, ownDepth: 1, limit: c.Limits.Memory}
	defer k.close()

	if err := k.open(cmd, s, arguments); err != nil {
		return Result{}, err
	}

	switch {
	case arguments != nil:
		k.ownDepth = 2
		cmd.Path = h.bwrap
		cmd.Args = []string{"bwrap", "--args", fmt.Sprint(bwrapFD), "--", fmt.Sprintf("/proc/self/fd/%d", selfFD), supervisorArg}
	case h.pidNamespace && s.Tier == TierB:
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}

	head := &prefixWriter{w: c.Stderr}
	k.stderr = head
	if arguments != nil {
		if sameWriter(c.Stdout, c.Stderr) {
			c.Stdout = head
		}
		c.Stderr = head
	}

	return runToEnd(ctx, cmd, k, c)
}

// supervisedTree holds on to the keeper of a command.
type supervisedTree struct {
	host       *host
	ownDepth   int   // generations of processes above the command that are not its own
	root       int   // the first of them
	limit      int64 // bytes
	stderr     *prefixWriter
	childFiles []*os.File // the child's ends
	report     *os.File
	control    *os.File
	once       sync.Once
}

// open makes the files that a keeper begins with, in their order.
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
	_, _ = k.control.Write([]byte{'t'}) // a keeper that is gone needs no asking
}

// kill hangs up on the keeper, which then ends everything; when it is called again, the keeper
// had its chance, and everything is ended from here.
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
	for _, p := range liveDescendants(k.host.scan(), k.root) {
		if p.depth >= k.ownDepth {
			u.processes++
			u.threads += p.threads
			u.memory += p.memory
			all = append(all, p)
		}
	}

	if len(all) > 1 && u.memory > k.limit { // what they share was counted for each of them; to know better is dear
		var exact int64
		for _, p := range all {
			exact += proportionalMemory(p)
		}
		u.memory = exact
	}

	return u
}

// scan is a look at all processes, shared by all commands that want one at about the same time.
func (h *host) scan() []process {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.scannedAt) > pollInterval/2 {
		h.scanned, h.scannedAt = processes(), time.Now()
	}
	return h.scanned
}

// result reads what the keeper told.
func (k *supervisedTree) result(state *os.ProcessState) (Result, error) {
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

	// Its keeper was ended with it.
	return Result{Exit: -1, Signal: "SIGKILL", CPU: state.UserTime() + state.SystemTime()}, nil
}

// noReportError is what to say of a keeper that never said that it began.
func (k *supervisedTree) noReportError(state *os.ProcessState) error {
	if text := strings.TrimSpace(k.stderr.text()); text != "" {
		return fmt.Errorf("%w: %s", errNoReport, text)
	}
	return fmt.Errorf("%w: %s", errNoReport, state)
}

// supervisorError is a failure that a keeper told.
type supervisorError struct {
	text  string
	errno unix.Errno
}

func (e *supervisorError) Error() string { return e.text }

func (e *supervisorError) Is(target error) bool {
	return target == exec.ErrNotFound && e.errno == unix.ENOENT || e.errno != 0 && e.errno.Is(target)
}

// prefixWriter keeps the beginning of what is written.
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

// layout looks at what a command is given, and covers what is hidden from it, in one go: what is
// covered for another command would be taken away in between.
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

	for i, m := range l.masks { // what lies in a cover is hidden by it
		for path := range h.placeholders {
			if m.root != "" && m.path != path && within(m.path, path) {
				l.masks[i] = mask{path: path, root: m.root, missing: true}
			}
		}
	}

	cleanup, err = h.createPlaceholders(l)
	return l, cleanup, err
}

// needsPlaceholder says whether what may only be read, within what may be written, is not there, or is but
// what hides that from another command: with that it goes, and this one could make the name.
func (h *host) needsPlaceholder(path string, write []string) bool {
	at := resolveExisting(path)
	if h.placeholders[at] > 0 {
		return true
	}
	_, err := os.Lstat(at)
	return errors.Is(err, os.ErrNotExist) && slices.ContainsFunc(write, func(w string) bool { return within(at, resolveExisting(w)) })
}

// createPlaceholders makes folders in the place of hidden names that do not exist, for only what exists can be
// mounted over. The last command that hides one takes it away again, unless somebody else put
// something there. The host's lock is held.
func (h *host) createPlaceholders(l layout) (cleanup func(), err error) {
	made := map[string]string{}
	cleanup = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for path, root := range made {
			h.releasePlaceholder(path, root)
		}
	}

	for _, m := range l.masks {
		if m.root == "" || (!m.missing && h.placeholders[m.path] == 0) {
			continue
		}

		if m.missing {
			if err := inRoot(m, (*os.Root).Mkdir); err != nil && !errors.Is(err, os.ErrExist) {
				for path, root := range maps.Clone(made) {
					h.releasePlaceholder(path, root)
				}
				return nil, fmt.Errorf("what it may not make cannot be hidden: %w", err)
			}
		}

		h.placeholders[m.path]++
		made[m.path] = m.root
	}

	return cleanup, nil
}

func (h *host) releasePlaceholder(path, root string) {
	h.placeholders[path]--
	if h.placeholders[path] == 0 {
		delete(h.placeholders, path)
		_ = inRoot(mask{path: path, root: root}, func(r *os.Root, name string, _ os.FileMode) error { return r.Remove(name) })
	}
}

// inRoot does something with a mask's name below its root, wherever links lead meanwhile.
func inRoot(m mask, do func(r *os.Root, name string, mode os.FileMode) error) error {
	r, err := os.OpenRoot(m.root)
	if err != nil {
		return err
	}
	defer r.Close()
	return do(r, strings.TrimPrefix(m.path[len(m.root):], "/"), 0o700)
}

// tierBRules are the rules where no mounts help: the system, and what is given.
func tierBRules(l layout, network bool) ([]rule, error) {
	rules, err := l.landlockRules()
	if err != nil {
		return nil, err
	}

	for _, path := range slices.Concat(systemFolders, systemFiles(network), tierBSystem) {
		if to, err := resolve(path, "the system"); err == nil {
			rules = append(rules, rule{to, accessRead})
		}
	}

	for _, path := range devices {
		rules = append(rules, rule{path, accessDevice})
	}

	return rules, nil
}

// makeTemp makes a folder for temporary files, where /tmp is that of the whole machine.
func (s *launchSpec) makeTemp() (remove func(), err error) {
	if s.Temp, err = os.MkdirTemp("", "rouse-sandbox-"); err != nil {
		return nil, err
	}

	s.Rules = append(s.Rules, rule{s.Temp, accessWrite})
	if !slices.ContainsFunc(s.Env, func(text string) bool { return strings.HasPrefix(text, "TMPDIR=") }) {
		s.Env = append(slices.Clone(s.Env), "TMPDIR="+s.Temp)
	}
	return func() { _ = os.RemoveAll(s.Temp) }, nil // what cannot be taken away is the system's to tidy
}
