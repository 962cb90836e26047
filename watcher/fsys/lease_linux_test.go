package fsys

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestOpenForWriting checks that a file that is open for writing is detected under all its names,
// and that the check does not change the file.
func TestOpenForWriting(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}

	open := func() bool {
		t.Helper()
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return OpenForWriting(f)
	}
	if open() {
		t.Skip("this file system gives no leases") // or an unknown program writes to the file
	}

	for name, flags := range map[string]int{"write": os.O_WRONLY, "append": os.O_WRONLY | os.O_APPEND, "both": os.O_RDWR} {
		w, err := os.OpenFile(filepath.Join(dir, "b"), flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !open() {
			t.Errorf("%s: it is taken for closed", name)
		}
		if err := w.Close(); err != nil || open() {
			t.Errorf("%s: it is taken for open after it was closed (%v)", name, err)
		}
	}

	// A reader does not count. A writable mapping keeps the file open after its descriptor is
	// closed.
	r, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := syscall.Mmap(int(r.Fd()), 0, 4, syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil || !open() {
		t.Errorf("a mapped file is taken for closed (%v)", err)
	}
	if err := syscall.Munmap(mapped); err != nil || open() {
		t.Errorf("it is taken for open after it was unmapped (%v)", err)
	}
}

// TestLeaseDisturbsNobody checks that a program can open a file during the check, and that the
// kernel's signal does not end this process.
func TestLeaseDisturbsNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			f, err := os.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			OpenForWriting(f)
			f.Close()
		}
	})

	for range 2000 {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	close(done)
	group.Wait()
	if info, err := os.Stat(path); err != nil || info.Size() != 2000 {
		t.Errorf("%v (%v)", info, err)
	}
}

// TestWritersAreNamed checks that only a program that has the file open for writing is named, and
// that the list is cached.
func TestWritersAreNamed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"written", "both", "read"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var files []*os.File
	for name, flags := range map[string]int{"written": os.O_WRONLY | os.O_APPEND, "both": os.O_RDWR, "read": os.O_RDONLY} {
		f, err := os.OpenFile(filepath.Join(dir, name), flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}

	var w Writers
	now, me := time.Now(), fmt.Sprintf("(process %d)", os.Getpid())
	for name, want := range map[string]bool{"written": true, "both": true, "read": false, "none": false} {
		if got := w.Of(filepath.Join(dir, name), now); strings.HasSuffix(got, me) != want || strings.HasPrefix(got, ": ") != want || (got == "") == want {
			t.Errorf("%s: %q", name, got)
		}
	}

	for _, f := range files {
		f.Close()
	}
	for after, want := range map[time.Duration]bool{writersAge: true, writersAge + 1: false} {
		again := w
		if got := again.Of(filepath.Join(dir, "written"), now.Add(after)); (got != "") != want {
			t.Errorf("after %s: %q", after, got)
		}
	}
}
