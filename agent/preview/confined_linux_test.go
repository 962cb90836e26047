package preview

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent/sandbox"
)

// TestReadersAreConfined checks that the kernel confines the process that reads a file, on each
// tier with a filter.
func TestReadersAreConfined(t *testing.T) {
	for _, tier := range []sandbox.Tier{sandbox.TierNamespaces, sandbox.TierLandlock} {
		if is, why := boxes[tier].Tier(t.Context()); is != tier {
			t.Logf("tier %s cannot be tried here: %v", tier, why)
			continue
		}

		content, file := io.Pipe()
		ended := make(chan error)
		go func() {
			_, err := New(boxes[tier]).PDF(t.Context(), content, 1, 100)
			ended <- err
		}()
		if _, err := file.Write([]byte("%PDF-1.4\n")); err != nil {
			t.Fatal(err)
		}

		readers := 0
		for end := time.Now().Add(10 * time.Second); readers == 0 && time.Now().Before(end); {
			readers = confinedReaders(t)
		}
		if readers != 1 {
			t.Errorf("tier %s: %d confined processes read the file", tier, readers)
		}

		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		var fault *Fault
		if err := <-ended; !errors.As(err, &fault) || !strings.Contains(fault.Message, "is no PDF") {
			t.Errorf("tier %s: %v", tier, err)
		}
	}
}

// confinedReaders returns the number of processes that read a file behind a system call filter.
func confinedReaders(t *testing.T) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}

	for _, process := range all {
		argv, err := os.ReadFile(filepath.Join(process, "cmdline"))
		if err != nil || !bytes.HasSuffix(argv, []byte("\x00"+childName+"\x00")) {
			continue // another process, or one that has ended
		}
		if status, err := os.ReadFile(filepath.Join(process, "status")); err == nil && strings.Contains(string(status), "Seccomp:\t2") {
			n++
		}
	}
	return n
}
