package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/supervision"
)

// The watchdog is pinged while each part works, not while one hangs, and again afterwards. A
// ledger that only refuses writes is reported without a restart.
func TestWatchdog(t *testing.T) {
	s := serveHere(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: a}]\njobs: [{name: j, agent: a, schedule: \"0 8 * * *\", playbook: [{call: db_schema}]}]\n"})
	address := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", address)
	t.Setenv("WATCHDOG_USEC", "300000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))

	// Use the running daemon, with one part that hangs or fails on demand.
	var hangs, refuses atomic.Bool
	released := make(chan struct{})
	well := s.newLiveness(s.dispatching.Load())
	dispatcher, ledger := well.Parts[2].Ask, well.Parts[0].Ask
	well.Parts[2].Ask = func(ctx context.Context) error {
		if hangs.Load() {
			<-released // ignores ctx, like an unresponsive disk
		}
		return dispatcher(ctx)
	}
	well.Parts[0].Ask = func(ctx context.Context) error {
		if refuses.Load() {
			return errors.New("the disk is full")
		}
		return ledger(ctx)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sup, over := supervision.New(true, s.Current, s.Explainer, s.Daemon.log), make(chan error, 1)
	go func() { over <- sup.Run(ctx, well) }()

	next := func() string {
		text := make([]byte, 8192)
		n, err := conn.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(text[:n])
	}
	until := func(begins string) (said string) {
		cmdtest.Until(t, begins, func() bool { said = next(); return strings.HasPrefix(said, begins) })
		return said
	}

	if said := until("WATCHDOG=1\n"); !strings.Contains(said, "STATUS=serves 1 job, next j at ") {
		t.Error(said)
	}

	hangs.Store(true)
	if said := until("STATUS=hangs"); !strings.Contains(said, "dispatcher") {
		t.Error(said)
	}
	for range 5 {
		if said := next(); strings.Contains(said, "WATCHDOG=1") {
			t.Errorf("a part hangs, and the watchdog is told: %s", said)
		}
	}
	hangs.Store(false)
	close(released)
	until("WATCHDOG=1\nSTATUS=serves")

	refuses.Store(true)
	until("WATCHDOG=1\nSTATUS=cannot work: the disk is full")
	refuses.Store(false)
	until("WATCHDOG=1\nSTATUS=serves")

	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}

	// Changes are logged, not each check. On a busy machine a check may also be late.
	var told []string
	for line := range strings.Lines(s.log.String()) {
		if _, said, ok := strings.Cut(line, `"msg":"the daemon does`); ok {
			told = append(told, said)
		}
	}
	if all := strings.Join(told, ""); !strings.Contains(all, "dispatcher") || !strings.Contains(all, "the disk is full") || len(slices.Compact(slices.Clone(told))) != len(told) || !strings.HasPrefix(told[len(told)-1], " its work again") {
		t.Errorf("%q", told)
	}
}

// A reload and a normal stop are reported in the format of sd_notify(3). A long status is
// truncated to the size that systemd accepts.
func TestNotifications(t *testing.T) {
	s := serveHere(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: a}]\njobs: [{name: j, agent: a, schedule: \"0 8 * * *\", playbook: [{call: db_schema}]}]\n"})
	address := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", address)
	next := func() string {
		text := make([]byte, 8192)
		n, err := conn.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(text[:n])
	}

	sup := supervision.New(true, s.Current, s.Explainer, s.Daemon.log)
	if supervision.New(false, s.Current, s.Explainer, s.Daemon.log).On {
		t.Error("a command that does not serve notifies systemd")
	}
	sup.Reload(t.Context(), func() {
		if said := next(); !strings.HasPrefix(said, "RELOADING=1\nSTATUS=") {
			t.Error(said)
		}
	})
	if said := next(); !strings.HasPrefix(said, "READY=1\nSTATUS=serves 1 job, next j at ") {
		t.Error(said)
	}

	drained := sup.Stopping(t.Context())
	if said := next(); !strings.HasPrefix(said, "STOPPING=1\nSTATUS=lets running jobs finish") {
		t.Error(said)
	}
	if said := next(); said != "EXTEND_TIMEOUT_USEC=20000000" {
		t.Error(said)
	}
	drained()

	sup.Report(t.Context(), errors.New(strings.Repeat("long\n", 4096)))
	if said := next(); len(said) > 4096 || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "WATCHDOG=1\nSTATUS=cannot work: long") {
		t.Errorf("%d bytes: %.100s", len(said), said)
	}
}
