//go:build amd64 || arm64

package powercut

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrNotAllowed is returned if the system does not allow tracing a program.
var ErrNotAllowed = errors.New("the calls of a program cannot be followed here")

// Constants of ptrace(2) that golang.org/x/sys/unix does not define.
const (
	getSyscallInfo = 0x420e
	infoEntry      = 1
	infoExit       = 2
)

// syscallInfo is struct ptrace_syscall_info.
type syscallInfo struct {
	op    uint8
	_     [3]uint8
	_     uint32 // architecture
	_, _  uint64 // instruction and stack pointers
	first uint64 // system call number, or its result
	args  [6]uint64
}

// call describes how a system call affects files, and the positions of its arguments.
type call struct {
	do    func(r *recorder, p *pending) error
	paths []int // indexes of path arguments
	at    bool  // a folder descriptor precedes each path
	flags int   // index of the flags of open
}

var calls = map[uint64]call{
	unix.SYS_OPENAT:          {do: callOpen, at: true, paths: []int{1}, flags: 2},
	unix.SYS_RENAMEAT:        {do: callRename, at: true, paths: []int{1, 3}},
	unix.SYS_RENAMEAT2:       {do: callRename, at: true, paths: []int{1, 3}},
	unix.SYS_LINKAT:          {do: callLink, at: true, paths: []int{1, 3}},
	unix.SYS_UNLINKAT:        {do: callUnlink, at: true, paths: []int{1}},
	unix.SYS_MKDIRAT:         {do: callMkdir, at: true, paths: []int{1}},
	unix.SYS_WRITE:           {do: callWrite},
	unix.SYS_WRITEV:          {do: callWrite},
	unix.SYS_PWRITE64:        {do: callWriteAt},
	unix.SYS_PWRITEV:         {do: callWriteAt},
	unix.SYS_COPY_FILE_RANGE: {do: callCopy},
	unix.SYS_FTRUNCATE:       {do: callTruncate},
	unix.SYS_FALLOCATE:       {do: callAllocate},
	unix.SYS_MMAP:            {do: callMap},
	unix.SYS_FSYNC:           {do: callSync},
	unix.SYS_FDATASYNC:       {do: callSync},
}

// pending is a system call that has begun.
type pending struct {
	call
	thread int
	args   [6]uint64
	path   [2]string // absolute paths
	found  bool      // the last path existed before the call
	last   bool      // and had only this name
	ino    uint64
	began  int
	answer int64
}

// recorder traces one program.
type recorder struct {
	trace *Trace
	pid   int
	files map[uint64]int // by inode
	next  int

	failSync func(path string) bool

	// Only one call runs at a time, so that their order is known.
	inside  *pending
	waiting []*pending
}

// Record runs a program to its end. It records the program's changes in the folder and its standard
// output. If the program fails, the error contains its standard error. Record returns ErrNotAllowed
// if tracing is not possible.
func Record(o Options) (*Trace, error) {
	root, err := filepath.EvalSymlinks(o.Root)
	if err != nil {
		return nil, err
	}

	r := &recorder{failSync: o.FailSync, trace: &Trace{root: root, began: map[string][]byte{}}, files: map[uint64]int{}}
	if err := r.look(); err != nil {
		return nil, err
	}

	// A program must be traced by a single OS thread. The thread ends with its goroutine, because
	// it stays locked.
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- r.run(o.Program, o.Env)
	}()
	if err := <-done; err != nil {
		return nil, err
	}
	return r.trace, nil
}

// look records the initial content of the folder, which is on disk.
func (r *recorder) look() error {
	err := filepath.WalkDir(r.trace.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := r.within(path)
		if e.IsDir() {
			r.trace.dirs = append(r.trace.dirs, name)
			return nil
		}

		r.files[inode(path)] = r.next // in the order of names, like their numbers
		r.next++
		r.trace.began[name], err = os.ReadFile(path)
		return err
	})
	return err
}

func (r *recorder) run(program string, env []string) error {
	said, err := os.CreateTemp("", "rouse-powercut-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(said.Name()) }()
	defer said.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()

	p, err := os.StartProcess(program, []string{program}, &os.ProcAttr{Env: env, Files: []*os.File{null, null, said}, Sys: &syscall.SysProcAttr{Ptrace: true}})
	if errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("%w: %w", ErrNotAllowed, err)
	}
	if err != nil {
		return err
	}

	r.pid = p.Pid
	status, err := r.follow()
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	if text, _ := os.ReadFile(said.Name()); status.ExitStatus() != 0 {
		return fmt.Errorf("the program ended with %d (signal %v): %s", status.ExitStatus(), status.Signal(), text)
	}
	return nil
}

// ofThisThread restricts wait4 to the threads of the traced program. Other children of this process
// are ignored.
const ofThisThread = unix.WALL | 0x20000000

// follow runs the program from one system call to the next.
func (r *recorder) follow() (status unix.WaitStatus, err error) {
	if _, err := unix.Wait4(r.pid, &status, ofThisThread, nil); err != nil || !status.Stopped() {
		return status, fmt.Errorf("%w: %v %w", ErrNotAllowed, status, err)
	}
	if err := unix.PtraceSetOptions(r.pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
		return status, fmt.Errorf("%w: %w", ErrNotAllowed, err)
	}

	known := map[int]bool{r.pid: true}
	if err := resume(r.pid, 0); err != nil {
		return status, err
	}
	for {
		thread, err := unix.Wait4(-1, &status, ofThisThread, nil)
		if err != nil {
			return status, err
		}

		switch {
		case status.Exited() || status.Signaled():
			if thread == r.pid {
				return status, nil
			}
			if r.inside != nil && r.inside.thread == thread {
				err = r.leave()
			}
		case status.StopSignal() == unix.SIGTRAP|0x80:
			err = r.stopped(thread)
		case status.StopSignal() == unix.SIGTRAP: // new thread
			err = resume(thread, 0)
		case status.StopSignal() == unix.SIGSTOP && !known[thread]: // initial stop of a new thread
			known[thread] = true
			err = resume(thread, 0)
		default:
			err = resume(thread, int(status.StopSignal()))
		}
		if err != nil {
			return status, err
		}
	}
}

// resume continues a thread until its next system call. If the thread has ended, the next wait
// reports it.
func resume(thread, signal int) error {
	if err := unix.PtraceSyscall(thread, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// stopped handles the start or end of a system call. It continues the thread or queues the call.
func (r *recorder) stopped(thread int) error {
	var info syscallInfo
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, getSyscallInfo, uintptr(thread), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if e != 0 && e != unix.ESRCH {
		return fmt.Errorf("%w: %w", ErrNotAllowed, e)
	}

	switch {
	case info.op == infoEntry:
		c, ok := calls[info.first]
		if !ok {
			c, ok = oldCalls[info.first]
		}
		if !ok {
			break
		}

		p := &pending{call: c, thread: thread, args: info.args}
		if r.inside != nil {
			r.waiting = append(r.waiting, p)
			return nil
		}
		return r.enter(p)
	case info.op == infoExit && r.inside != nil && r.inside.thread == thread:
		if r.inside.answer = int64(info.first); r.inside.answer >= 0 {
			if err := r.inside.do(r, r.inside); err != nil {
				return err
			}
		}
		if err := r.leave(); err != nil {
			return err
		}
	}
	return resume(thread, 0)
}

// enter starts a call.
func (r *recorder) enter(p *pending) error {
	p.began = len(r.trace.ops)
	if err := r.prepare(p); err != nil {
		return err
	}
	r.inside = p
	return resume(p.thread, 0)
}

// leave starts the next queued call.
func (r *recorder) leave() error {
	r.inside = nil
	if len(r.waiting) == 0 {
		return nil
	}
	p := r.waiting[0]
	r.waiting = r.waiting[1:]
	return r.enter(p)
}

// prepare reads the data that is only available before a call.
func (r *recorder) prepare(p *pending) error {
	for i, arg := range p.paths {
		var err error
		if p.path[i], err = r.path(p, arg); err != nil {
			return err
		}

		var st unix.Stat_t
		p.found = unix.Lstat(p.path[i], &st) == nil
		p.last, p.ino = st.Nlink == 1, st.Ino
	}
	return nil
}

// path returns the absolute path of an argument.
func (r *recorder) path(p *pending, arg int) (string, error) {
	path, err := r.text(p.args[arg])
	if err != nil || filepath.IsAbs(path) {
		return path, err
	}

	dir := fmt.Sprintf("/proc/%d/cwd", p.thread)
	if p.at && int32(p.args[arg-1]) != unix.AT_FDCWD {
		dir = fmt.Sprintf("/proc/%d/fd/%d", p.thread, int32(p.args[arg-1]))
	}
	if dir, err = os.Readlink(dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, path), nil
}

// text reads a string from the program's memory.
func (r *recorder) text(at uint64) (string, error) {
	var out []byte
	for {
		// Read up to the end of the page, because the next page may not exist.
		part := make([]byte, 4096-at%4096)
		if err := r.memory(part, at); err != nil {
			return "", err
		}
		if end := bytes.IndexByte(part, 0); end >= 0 {
			return string(append(out, part[:end]...)), nil
		}
		out, at = append(out, part...), at+uint64(len(part))
	}
}

func (r *recorder) memory(into []byte, at uint64) error {
	local := unix.Iovec{Base: &into[0]}
	local.SetLen(len(into))
	n, err := unix.ProcessVMReadv(r.pid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(at), Len: len(into)}}, 0)
	if err == nil && n != len(into) {
		err = unix.EFAULT
	}
	return err
}

// within returns the path within the folder, or "" if path is outside of it.
func (r *recorder) within(path string) string {
	name, err := filepath.Rel(r.trace.root, path)
	if err != nil || !filepath.IsLocal(name) {
		return ""
	}
	return name
}

func (r *recorder) add(o op) { r.trace.ops = append(r.trace.ops, o) }

// opened returns the number of the file behind a descriptor, and a path that opens it. ok is false
// for folders and for files outside of the folder.
func (r *recorder) opened(p *pending, descriptor uint64) (file int, at string, ok bool) {
	at = fmt.Sprintf("/proc/%d/fd/%d", p.thread, int32(descriptor))
	file, ok = r.files[inode(at)]
	return file, at, ok
}

func inode(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0 // not a valid inode
	}
	return st.Ino
}

func callOpen(r *recorder, p *pending) error {
	name := r.within(p.path[0])
	flags := p.args[p.flags]
	if name == "" || flags&(unix.O_CREAT|unix.O_TRUNC) == 0 {
		return nil
	}

	at := fmt.Sprintf("/proc/%d/fd/%d", p.thread, p.answer)
	if !p.found {
		r.files[inode(at)] = r.next
		r.add(op{kind: opName, file: r.next, path: name})
		r.next++
	} else if file, ok := r.files[inode(at)]; ok && flags&unix.O_TRUNC != 0 {
		r.add(op{kind: opResize, file: file})
	}
	return nil
}

func callRename(r *recorder, p *pending) error {
	from, to := r.within(p.path[0]), r.within(p.path[1])
	if p.found && p.last { // the replaced file is gone, and its inode may be reused
		delete(r.files, p.ino)
	}
	file, ok := r.files[inode(p.path[1])]
	switch {
	case ok && to != "":
		r.add(op{kind: opName, file: file, path: to, old: from})
	case to != "" || from != "":
		return fmt.Errorf("%s was renamed to %s, which is not followed: it is a folder, or of another", p.path[0], p.path[1])
	}
	return nil
}

func callLink(r *recorder, p *pending) error {
	if file, ok := r.files[inode(p.path[1])]; ok {
		r.add(op{kind: opName, file: file, path: r.within(p.path[1])})
	}
	return nil
}

func callUnlink(r *recorder, p *pending) error {
	if p.at && p.args[2]&unix.AT_REMOVEDIR != 0 {
		return callRmdir(r, p)
	}
	if name := r.within(p.path[0]); name != "" {
		r.add(op{kind: opUnname, path: name})
	}
	if p.last {
		delete(r.files, p.ino)
	}
	return nil
}

func callRmdir(r *recorder, p *pending) error {
	if name := r.within(p.path[0]); name != "" {
		r.add(op{kind: opRmdir, path: name})
	}
	return nil
}

func callMkdir(r *recorder, p *pending) error {
	if name := r.within(p.path[0]); name != "" {
		r.add(op{kind: opMkdir, path: name})
	}
	return nil
}

// callWrite records a write at the current position of a file.
func callWrite(r *recorder, p *pending) error {
	file, at, ok := r.opened(p, p.args[0])
	if !ok {
		if p.args[0] != 1 || p.answer == 0 {
			return nil
		}
		said := make([]byte, p.answer)
		err := r.memory(said, p.args[1])
		r.add(op{kind: opSay, data: said})
		return err
	}

	end, err := r.position(p, p.args[0])
	if err != nil {
		return err
	}
	return r.written(file, at, end-p.answer, p.answer)
}

func callWriteAt(r *recorder, p *pending) error {
	if file, at, ok := r.opened(p, p.args[0]); ok {
		return r.written(file, at, int64(p.args[3]), p.answer)
	}
	return nil
}

func callCopy(r *recorder, p *pending) error {
	file, at, ok := r.opened(p, p.args[2])
	if !ok {
		return nil
	}
	if p.args[3] != 0 {
		return errors.New("copy_file_range to a place of its own is not followed")
	}

	end, err := r.position(p, p.args[2])
	if err != nil {
		return err
	}
	return r.written(file, at, end-p.answer, p.answer)
}

// position returns the offset of the next write of a descriptor.
func (r *recorder) position(p *pending, descriptor uint64) (int64, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", p.thread, int32(descriptor)))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(strings.TrimPrefix(string(info), "pos:"), "\n")
	return strconv.ParseInt(strings.TrimSpace(line), 10, 64)
}

// written records the data that a write has put into a file.
func (r *recorder) written(file int, at string, off, n int64) error {
	f, err := os.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()

	data := make([]byte, n)
	if _, err := f.ReadAt(data, off); err != nil {
		return err
	}
	r.add(op{kind: opWrite, file: file, off: off, data: data})
	return nil
}

func callTruncate(r *recorder, p *pending) error {
	if file, _, ok := r.opened(p, p.args[0]); ok {
		r.add(op{kind: opResize, file: file, off: int64(p.args[1])})
	}
	return nil
}

// callAllocate records that a file may become longer.
func callAllocate(r *recorder, p *pending) error {
	file, at, ok := r.opened(p, p.args[0])
	if !ok {
		return nil
	}
	info, err := os.Stat(at)
	if err != nil {
		return err
	}
	r.add(op{kind: opResize, file: file, off: info.Size()})
	return nil
}

func callMap(r *recorder, p *pending) error {
	if p.args[2]&unix.PROT_WRITE == 0 || p.args[3]&unix.MAP_SHARED == 0 {
		return nil
	}
	if file, _, ok := r.opened(p, p.args[4]); ok {
		r.add(op{kind: opMap, file: file})
	}
	return nil
}

func callSync(r *recorder, p *pending) error {
	file, at, ok := r.opened(p, p.args[0])
	path, err := os.Readlink(at)
	if err != nil {
		return err
	}
	name := r.within(path)

	switch {
	case name != "" && r.failSync != nil && r.failSync(name):
		return answer(p.thread, -int64(unix.EIO))
	case ok:
		r.add(op{kind: opSync, file: file, began: p.began})
	case name != "":
		r.add(op{kind: opSyncNames, path: name, began: p.began})
	}
	return nil
}

// answer replaces the result of a system call.
func answer(thread int, value int64) error {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(thread, &regs); err != nil {
		return err
	}
	setAnswer(&regs, value)
	return unix.PtraceSetRegs(thread, &regs)
}
