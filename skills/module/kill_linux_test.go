package module_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"rouse/skills/module"
)

// TestKilled checks that killing the process ends only its module, and that no process is left. It
// must not run in parallel with other tests.
func TestKilled(t *testing.T) {
	const text = `export async function execute(args: unknown, host: any) { await host.storage.get("k"); return 1; }`
	surface := module.Surface{Methods: []string{"storage.get"}}
	other := start(t, text, module.Start{Surface: surface})
	next(t, other)
	before := children(t)
	i := start(t, text, module.Start{Surface: surface})
	next(t, i)

	fresh := slices.DeleteFunc(children(t), func(pid int) bool { return slices.Contains(before, pid) })
	if len(fresh) != 1 {
		t.Fatalf("it has the processes %v", fresh)
	}
	if err := syscall.Kill(fresh[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	end := ended(t, next(t, i, module.Answer{ID: 1}))
	if end.Status != module.Crashed || !strings.Contains(end.Error, "SIGKILL") {
		t.Errorf("it ended with %v", end)
	}
	want(t, ended(t, next(t, other, module.Answer{ID: 1})), "1")

	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// TestWithoutEnvironment checks that the process has no environment and no open files except its
// streams.
func TestWithoutEnvironment(t *testing.T) {
	t.Setenv("ROUSE_CANARY", "canary")
	i := start(t, `export async function execute(args: unknown, host: any) { await host.storage.get("k"); }`, module.Start{Surface: module.Surface{Methods: []string{"storage.get"}}})
	next(t, i)
	for _, pid := range children(t) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || strings.Contains(string(text), "canary") || strings.Contains(string(text), "HOME=") {
			t.Errorf("its environment is %q (%v)", text, err)
		}

		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(files) < 3 {
			t.Fatalf("%d: %v (%v)", pid, files, err)
		}
		for _, file := range files {
			if to, err := os.Readlink(file); err == nil && strings.HasPrefix(to, "/") && to != "/dev/null" {
				t.Errorf("it has %s open", to)
			}
		}
	}
}

// children returns the module processes of this process.
func children(t *testing.T) (pids []int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		text, err := os.ReadFile(line)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(line)))
		if err == nil && bytes.HasSuffix(text, []byte("\x00module-child\x00")) && descends(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descends reports whether a process is a descendant of this process.
func descends(pid int) bool {
	for pid > 1 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		// The name in parentheses may contain any character. The parent is the second field after
		// it.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if pid, err = strconv.Atoi(fields[1]); err != nil || pid == os.Getpid() {
			return err == nil
		}
	}
	return false
}
