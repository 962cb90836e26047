//go:build unix

package shell_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// more are programs that not every system can start.
var more = map[string]func(args []string) int{"detach": detach, "hold": hold}

// detach starts a process in its own session, and ends when that process runs.
func detach(args []string) int {
	me, err := os.Executable()
	if err != nil {
		return 1
	}

	cmd := exec.Command(me, append([]string{"as", "hold"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	begun, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return 1
	}
	if _, err := io.ReadFull(begun, make([]byte, 1)); err != nil {
		return 1
	}

	fmt.Println("left behind")
	return 0
}

// hold keeps a lock for a minute and ignores signals.
func hold(args []string) int {
	f, err := os.Create(args[0])
	if err != nil || syscall.Flock(int(f.Fd()), syscall.LOCK_EX) != nil {
		return 1
	}
	fmt.Print(".")
	time.Sleep(time.Minute)
	return 0
}

// TestLeftBehind checks that background processes of a command are gone when the call returns.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	if _, got := b.run(b.me + " as detach held"); got["stdout"] != "left behind\n" {
		t.Fatalf("%v", got)
	}

	f, err := os.Open(filepath.Join(b.dir, "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Errorf("somebody holds the lock still: %v", err)
	}
}
