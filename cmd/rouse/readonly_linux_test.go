package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// runUnprivileged runs a program that file modes apply to, even if the tests run as root.
func runUnprivileged(t *testing.T, p *endtoend.Program) error {
	t.Helper()
	ended := make(chan error)
	go func() {
		// Child processes lose the capabilities of this thread. The thread ends with the goroutine,
		// because the goroutine stays locked to it.
		runtime.LockOSThread()
		for _, capability := range []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER} {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil && os.Getuid() == 0 {
				ended <- err
				return
			}
		}
		ended <- p.Run()
	}()
	return <-ended
}

// lock removes write permission from a folder and its contents until the test ends.
func lock(t *testing.T, dir string) {
	t.Helper()
	change := func(file, folder fs.FileMode) {
		if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if e.IsDir() {
				return os.Chmod(path, folder)
			}
			return os.Chmod(path, file)
		}); err != nil {
			t.Fatal(err)
		}
	}

	change(0o400, 0o500)
	t.Cleanup(func() { change(0o600, 0o700) })
}

// TestReadOnlyHome checks that history is readable in a read-only home, including the WAL of a
// ledger that was not closed. rouse must print why it does not write.
func TestReadOnlyHome(t *testing.T) {
	for _, killed := range []bool{false, true} {
		dir := cmdtest.Write(t, map[string]string{"rouse.yaml": countJob})
		config := filepath.Join(dir, "rouse.yaml")
		endtoend.RunJSON(t, nil, "run", "count", "--config", config)
		if killed {
			p := endtoend.Serve(t, config)
			endtoend.RunJSON(t, nil, "run", "count", "--config", config)
			p.Kill(t)
			if err := os.Remove(filepath.Join(dir, "h", "ledger.db-shm")); err != nil {
				t.Fatal(err)
			}
			// Remainder of a sandbox check whose process was killed.
			if err := os.MkdirAll(filepath.Join(dir, "h", "commands", "rouse-sandbox-1", "inside"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		lock(t, filepath.Join(dir, "h"))

		for _, args := range [][]string{{"runs"}, {"show", "1"}, {"why", "count"}, {"logs", "1"}, {"jobs"}, {"inbox"}, {"next"}, {"ledger"}} {
			p := endtoend.Rouse(t, append(args, "--config", config)...)
			err := runUnprivileged(t, p)
			banner := p.Err.String()
			if err != nil || strings.Count(banner, "\n") != 1 || !strings.HasPrefix(banner, "rouse: read-only: "+filepath.Join(dir, "h")+" cannot be written") {
				t.Errorf("killed %v: rouse %v: %v\n%s%s", killed, args, err, banner, p.Out.String())
			}
			if args[0] == "runs" && killed != strings.Contains(p.Out.String(), "\n2 ") && killed != strings.HasPrefix(p.Out.String(), "2 ") {
				t.Errorf("killed %v: the runs are\n%s", killed, p.Out.String())
			}
		}

		for _, args := range [][]string{{"run", "count"}, {"pause", "count"}, {"serve"}, {"ledger", "backup"}, {"ledger", "reset"}} {
			p := endtoend.Rouse(t, append(args, "--config", config)...)
			if err := runUnprivileged(t, p); err == nil || !strings.Contains(p.Err.String(), "it is only read. Look at the free space") {
				t.Errorf("killed %v: rouse %v: %v\n%s%s", killed, args, err, p.Err.String(), p.Out.String())
			}
		}

		p := endtoend.Rouse(t, "doctor", "--config", config)
		if err := runUnprivileged(t, p); err == nil || !strings.Contains(p.Out.String(), "FAIL  ledger") || !strings.Contains(p.Out.String(), "FAIL  home") {
			t.Errorf("doctor: %v\n%s", err, p.Out.String())
		}
	}
}

// failingDisk runs rouse on a simulated disk on which every fsync fails once the file $FAIL_WHEN
// exists.
func failingDisk() {
	if when := os.Getenv("FAIL_WHEN"); when == "" {
		failFsync()
	} else {
		go func() {
			for {
				if _, err := os.Stat(when); err == nil {
					failFsync()
					_ = os.Remove(when)
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
	}
	main()
}

// failFsync installs a seccomp filter that makes every fsync of this process fail with EIO.
func failFsync() {
	runtime.LockOSThread() // the privileges are per thread, and this thread drops them first
	f := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.SYS_FSYNC},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_FDATASYNC},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))); e != 0 {
		panic(e)
	}
}

// TestDoctorSeesFailingFsync checks a disk that accepts writes but fails to sync them. doctor must
// find that, and the daemon must report that writes failed.
func TestDoctorSeesFailingFsync(t *testing.T) {
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": countJob})
	config, when := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "fail")
	endtoend.RunJSON(t, nil, "run", "count", "--config", config)

	doctor := func(p *endtoend.Program, parts ...string) {
		t.Helper()
		err := p.Run()
		for _, part := range parts {
			if err == nil || !strings.Contains(p.Out.String(), part) {
				t.Errorf("%v, want %s in\n%s%s", err, part, p.Out.String(), p.Err.String())
			}
		}
	}
	doctor(endtoend.RouseAs(t, "rouse-failing-disk", "doctor", "--config", config), "FAIL  home", "does not reach the disk")

	p := endtoend.RouseAs(t, "rouse-failing-disk", "serve", "--config", config)
	p.Env = append(p.Env, "FAIL_WHEN="+when)
	p.UntilReady(t)
	if err := os.WriteFile(when, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the disk fails", func() bool { _, err := os.Stat(when); return os.IsNotExist(err) })
	if q := endtoend.Rouse(t, "run", "count", "--config", config); q.Run() == nil {
		t.Errorf("a run was accepted: %s", q.Out.String())
	}

	doctor(endtoend.Rouse(t, "doctor", "--config", config), "FAIL  home", "does not reach the disk", "FAIL  ledger", "nothing could be written to the ledger since")
	var status api.Status
	endtoend.RunJSON(t, &status, "status", "--json", "--config", config)
	if !strings.Contains(status.Problem, "nothing could be written to the ledger since") {
		t.Errorf("status: %q", status.Problem)
	}
	p.Kill(t)
}
