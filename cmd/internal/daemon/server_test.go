//go:build unix

package daemon

import (
	"errors"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
)

// A client that only follows events, or is connected without a request, does not delay the stop of
// a server. Clients do not take its end for the end of the followed run.
func TestServerStopsAtOnce(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: ann}]\n"})
	cfg, err := plan.Load(filepath.Join(dir, "rouse.yaml"), "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Logger: logging.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()

	s, err := d.openServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.run() }()

	silent, err := net.Dial("unix", homedir.SocketPath(d.Dir()))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	client, _, err := homedir.Connect(t.Context(), d.Dir())
	if err != nil {
		t.Fatal(err)
	}
	followed := make(chan error, 1)
	go func() {
		for _, err := range client.Lines(t.Context(), "/v1/events", url.Values{"follow": {"true"}}) {
			if err != nil {
				followed <- err
				return
			}
		}
		followed <- nil
	}()
	// The server handles another request of the same client during the stream.
	var st api.Status
	if err := client.Get(t.Context(), "/v1/status", nil, &st); err != nil || !st.Foreground {
		t.Errorf("%+v, %v", st, err)
	}

	if err := s.stop(t.Context()); err != nil {
		t.Errorf("somebody had to be cut off: %v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := <-followed; err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("the end of the stream looks like the end of what was followed: %v", err)
	}
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the silent connection: %v", err)
	}
}
