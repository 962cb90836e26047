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
	scratch      string   // folder for temporary files of running commands; "" means the system's
	self         *os.File // this binary at the daemon's start, because an upgrade may replace the file
	bwrap        string   // path of bubblewrap
	pidNamespace bool     // this process may create a PID namespace without bubblewrap
	short        bool     // the last trial lacked open files, memory or processes

	mu sync.Mutex
	// placeholders counts the commands that use each placeholder (see createPlaceholders).
	placeholders map[string]int

	scannedAt time.Time // time of the last process listing
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

// withSelf replaces the program by the descriptor of this binary, which every supervisor inherits.
func (c Command) withSelf() (Command, error) {
	c.Argv = append([]string{selfPath}, c.Argv[1:]...)
	return c, nil
}

// runWithCanaries is like run, but does not start the command if it could read one of the canary
// files.
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
	case TierNamespaces:
		arguments, s.Rules = bubblewrapArgs(l, c), tierARules(l)
		s.Places, err = places(l)
	case TierLandlock:
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

// start starts a supervisor with its launch spec. If there are arguments, it runs inside
// bubblewrap.
func (h *host) start(ctx context.Context, s launchSpec, arguments []string, c Command) (Result, error) {
	cmd := &exec.Cmd{Path: selfPath, Args: []string{"rouse", supervisorArg}, Env: []string{},
		Dir: "/", SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	// Without bwrap the supervisor is root, and the first generation below it is the command.
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
	case h.pidNamespace && s.Tier == TierLandlock:
		// As process 1 of its own namespace, the supervisor can kill all other processes at once.
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}

	head := &prefixWriter{w: c.Stderr}
	k.stderr = head
	// bwrap writes its own errors to the command's standard error. Keep the beginning for the case
	// that the command was not started.
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
	ownDepth   int   // generations below root from which processes count as the command's
	root       int   // the started process: bwrap or the supervisor
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
	_, _ = k.control.Write([]byte{'t'}) // fails if the supervisor is gone; no process is left then
}

// kill closes the control pipe, so that the supervisor kills everything. The second call kills the
// whole tree from here.
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

	// Shared memory was counted once for each process. The exact sum needs smaps_rollup, which
	// walks all page tables of a process. It is computed only if the rough sum exceeds the limit.
	if len(all) > 1 && u.memory > k.limit {
		var exact int64
		for _, p := range all {
			exact += proportionalMemory(p)
		}
		u.memory = exact
	}

	return u
}

// descendants returns the living processes of the tree. It is called often. If the kernel lists the
// children of a process, it does not read other processes.
func (k *supervisedTree) descendants() []process {
	if namesChildren() {
		return walkDescendants(k.root)
	}
	return liveDescendants(k.host.scan(), k.root)
}

// scan returns all processes. Calls at about the same time share one listing.
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
	// All other ends are closed by now, unless an escaped process holds one open.
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

// noReportError returns the error for a supervisor that ended before its first report.
func (k *supervisedTree) noReportError(state *os.ProcessState) error {
	if text := strings.TrimSpace(k.stderr.text()); text != "" {
		return fmt.Errorf("%w: %s", errNoReport, text)
	}
	return fmt.Errorf("%w: %s", errNoReport, state)
}

// supervisorError is a failure reported by a supervisor.
type supervisorError struct {
	text  string
	errno unix.Errno
}

func (e *supervisorError) Error() string { return e.text }

func (e *supervisorError) Is(target error) bool {
	// The original error stayed in the other process. Only its errno is available here.
	return target == exec.ErrNotFound && e.errno == unix.ENOENT || e.errno != 0 && e.errno.Is(target)
}

// prefixWriter passes writes on and keeps the beginning of the output.
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

// layout resolves the paths of a command, and creates the placeholders that it needs. Both happen
// under one lock. Otherwise another command could end in between and remove a placeholder that was
// found.
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
	if l, err = newLayout(c); err != nil || t != TierNamespaces {
		return l, func() {}, err
	}

	// A path inside another command's placeholder is hidden by hiding the placeholder.
	for i, m := range l.masks {
		for path := range h.placeholders {
			if m.root != "" && m.path != path && fspath.Within(m.path, path) {
				l.masks[i] = mask{path: path, root: m.root, missing: true}
			}
		}
	}
	l.masks = sortedMasks(l.masks) // one placeholder may contain several masks, but is used and released once

	cleanup, err = h.createPlaceholders(l, c.Boundary)
	return l, cleanup, err
}

// needsPlaceholder reports whether a read-only path below a writable folder does not exist. It also
// returns true for another command's placeholder, which is removed with that command. In both cases
// the command could create the name itself, so the path is masked instead.
func (h *host) needsPlaceholder(path string, write []string) bool {
	at := resolveExisting(path)
	if h.placeholders[at] > 0 {
		return true
	}
	_, err := os.Lstat(at)
	return errors.Is(err, os.ErrNotExist) && slices.ContainsFunc(write, func(w string) bool { return fspath.Within(at, resolveExisting(w)) })
}

// placeholder is an empty folder for a masked name that does not exist. Its parent folder stays
// open while a command needs the placeholder, because a link could replace the parent folder.
type placeholder struct {
	in   *os.Root
	name string
}

// openPlaceholder opens the parent folder of a placeholder. It does not follow links below the
// boundary or the mask's root.
func openPlaceholder(b nofollow.UntrustedDirs, m mask) (placeholder, error) {
	root, err := b.OpenRoot(m.root)
	if err != nil {
		return placeholder{}, err
	}
	defer root.Close()

	rel := strings.TrimPrefix(m.path[len(m.root):], "/")
	in, err := nofollow.OpenBelow(root, filepath.Dir(rel))
	return placeholder{in, filepath.Base(rel)}, err
}

// createPlaceholders creates empty folders for masked names that do not exist, because mounting
// over a name requires that it exists. The last command that masks a name removes the folder,
// unless the folder is no longer empty. The caller must hold the host's lock.
func (h *host) createPlaceholders(l layout, b nofollow.UntrustedDirs) (cleanup func(), err error) {
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
		_ = p.in.Remove(p.name) // it stays if it is not empty
	}
}

// tierBRules returns the Landlock rules for a command without mounts: the system and the granted
// paths.
func tierBRules(l layout, network bool) ([]rule, error) {
	rules, err := l.landlockRules()
	if err != nil {
		return nil, err
	}

	for _, path := range slices.Concat(systemFolders, systemFiles(network), tierBSystem) {
		if to, err := resolve(path, "the system"); err == nil { // systems may lack some of them
			rules = append(rules, rule{to, accessRead})
		}
	}

	for _, path := range devices {
		rules = append(rules, rule{path, accessDevice})
	}

	return rules, nil
}

// makeTemp creates a folder for temporary files, because without mounts /tmp is shared with the
// machine.
func (s *launchSpec) makeTemp(scratch string) (remove func(), err error) {
	if s.Temp, err = MkdirTemp(scratch, "sandbox"); err != nil {
		return nil, err
	}

	s.Rules = append(s.Rules, rule{s.Temp, accessWrite})
	if !slices.ContainsFunc(s.Env, func(text string) bool { return strings.HasPrefix(text, "TMPDIR=") }) {
		s.Env = append(slices.Clone(s.Env), "TMPDIR="+s.Temp)
	}
	return func() { _ = os.RemoveAll(s.Temp) }, nil // remaining files are removed with the scratch folder
}
